"""Django: a view sends a message. One producer for each process of the server, made by the first request that needs it.

    pip install mqproto django gunicorn
    NAMESRV_ADDR=127.0.0.1:9876 gunicorn examples.django_app:application

Servers that fork their workers (gunicorn, uwsgi) must not start clients before the fork: a client belongs to the
process that started it, and in others every call raises StateError. A cached function does it right, and the process's
normal end closes what it made.
"""

from functools import cache

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from mqproto import Message
from mqproto.adapters.threaded import Producer
from mqproto.errors import MQError

settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="only for this example")
django.setup()


@cache
def producer() -> Producer:
    """The process's producer; any number of threads may use it."""
    return Producer("django-orders").start()


@csrf_exempt
@require_POST
def order(request: HttpRequest, number: str) -> JsonResponse:
    try:
        result = producer().send(Message("DjangoOrders", request.body or number.encode(), keys=[number]))
    except MQError as error:
        return JsonResponse({"error": str(error)}, status=503)
    return JsonResponse({"message": result.msg_id}, status=202)


urlpatterns = [path("orders/<number>", order)]
application = get_wsgi_application()
