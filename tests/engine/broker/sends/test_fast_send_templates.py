"""Templates of properties: sends that differ in their unique id alone are recognised."""

from __future__ import annotations

import pytest

from mqproto.engine.broker.sends.fast_send import TEMPLATES_MAX, PropertiesTemplate, SendTemplate
from tests.engine.broker.harness import send_fields
from tests.engine.broker.sends.test_fast_send import Twins, frame, java


class TestPropertiesTemplates:
    """Properties in which only the unique id changes are not scanned again."""

    @staticmethod
    def send(twins: Twins, opaque: int, text: str) -> None:
        (answer,) = twins.feed(frame(java(send_fields("T", text), opaque), b"body"))
        assert b'"code":0,' in answer

    @staticmethod
    def properties_template(twins: Twins) -> PropertiesTemplate | None:
        (header_template,) = twins.header_templates
        assert isinstance(header_template, SendTemplate)
        return header_template.properties_template

    @pytest.mark.parametrize(
        "form",
        [
            "UNIQ_KEY\x01{}\x02WAIT\x01true\x02TAGS\x01a\x02",
            "TAGS\x01a\x02WAIT\x01false\x02UNIQ_KEY\x01{}\x02",
            "KEYS\x01k1 k2\x02UNIQ_KEY\x01{}",
            "A\x01UNIQ_KEYS\x02UNIQ_KEY\x01{}\x02B\x01ü\x02",
        ],
    )
    def test_a_new_id_is_found_in_every_form(self, form: str) -> None:
        twins = Twins()
        ids = ["0A0A0A0A00002A139A5500000001", "0A0A0A0A00002A139A5500000002", "0A0A0A0A00002A139A55000000FF"]
        for opaque, unique in enumerate(ids):
            self.send(twins, opaque, form.format(unique))
        twins.check_stores()
        for world in (twins.fast, twins.general):
            for unique in ids:
                assert len(world.store.reader.query("T", unique, 32, 0, 1 << 60).views) == 1

    @pytest.mark.parametrize(
        "other",
        [
            # As long in the header as the template's, where a control character takes six places, a quote two and
            # an umlaut two bytes.
            "UNIQ_KEY\x01AB\x02XX\x02WAIT\x01true\x02TAGS\x01a\x02",
            "UNIQ_KEY\x01AB\x01XX\x02WAIT\x01true\x02TAGS\x01a\x02",
            "UNIQ_KEY\x01ABCDEFGHIJ\x02WAIT\x01true\x02TAGS\x01b\x02",
            "UNIQ_KEY\x01ABCDEFGHIJ\x02WAIT\x01fals\x02TAGS\x01a\x02",
            "UNIQ_KEZ\x01ABCDEFGHIJ\x02WAIT\x01true\x02TAGS\x01a\x02",
            "UNIQ_KEY\x01AB CDEFGHI\x02WAIT\x01true\x02TAGS\x01a\x02",
            'UNIQ_KEY\x01AB"CDEFGH\x02WAIT\x01true\x02TAGS\x01a\x02',
            "UNIQ_KEY\x01ABÄCDEFGH\x02WAIT\x01true\x02TAGS\x01a\x02",
            # Longer, shorter.
            "UNIQ_KEY\x01ABCDEFGHIJK\x02WAIT\x01true\x02TAGS\x01a\x02",
            "UNIQ_KEY\x01ABC\x02WAIT\x01true\x02TAGS\x01a\x02",
        ],
    )
    def test_what_does_not_fit_is_scanned(self, other: str) -> None:
        twins = Twins()
        usual = "UNIQ_KEY\x01{}\x02WAIT\x01true\x02TAGS\x01a\x02"
        self.send(twins, 1, usual.format("AAAAAAAAAA"))
        self.send(twins, 2, usual.format("AAAAAAAAAB"))
        assert self.properties_template(twins) is not None
        self.send(twins, 3, other)
        self.send(twins, 4, usual.format("AAAAAAAAAC"))
        twins.check_stores()

    @pytest.mark.parametrize(
        "text",
        [
            "UNIQ_KEY\x01a\x02TAGS\x01a\x02",
            "UNIQ_KEY\x01ID1\x02UNIQ_KEY\x01ID2\x02",
            "UNIQ_KEY\x01I D\x02",
            "KEYS\x01ID\x02UNIQ_KEY\x01ID\x02",
        ],
    )
    def test_no_mould_where_the_id_is_not_to_be_told_apart(self, text: str) -> None:
        twins = Twins()
        for opaque in range(3):
            self.send(twins, opaque, text)
        assert self.properties_template(twins) is None
        twins.check_stores()

    def test_properties_that_always_differ_cost_few_moulds(self) -> None:
        twins = Twins()
        for opaque in range(TEMPLATES_MAX + 3):
            self.send(twins, opaque, f"UNIQ_KEY\x01ABCDE\x02KEYS\x01key-{opaque:03}\x02")
        properties_template = self.properties_template(twins)
        assert properties_template is not None
        assert b"key-%03d" % TEMPLATES_MAX in properties_template.after
        twins.check_stores()
