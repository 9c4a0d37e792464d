#!/bin/sh
# Makes the certificates of the TLS tests anew. They belong to nobody and open nothing; keys lie beside them on purpose.
set -eu
cd "$(dirname "$0")"
days=36500
authority() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$1-key.pem" -out "$1.pem" -days $days -subj "/CN=$1"
}
signed() { # name, authority, alternative names, first and last day
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$1.key" -out "$1.csr" -subj "/CN=$1"
    printf '[ca]\ndefault_ca=a\n[a]\nnew_certs_dir=.\ndatabase=index\nserial=serial\ndefault_md=sha256\npolicy=p\n[p]\ncommonName=supplied\n[e]\nsubjectAltName=%s\n' "$3" > ca.conf
    : > index; : > index.attr; openssl rand -hex 8 > serial
    openssl ca -batch -notext -config ca.conf -extensions e -cert "$2.pem" -keyfile "$2-key.pem" -in "$1.csr" -out "$1.crt" -startdate "$4" -enddate "$5"
    cat "$1.crt" "$1.key" > "$1.pem"
    rm -f "$1.crt" "$1.key" "$1.csr" ca.conf index* serial* ./*[0-9A-F].pem
}
authority authority
authority stranger
signed server authority "DNS:localhost,IP:127.0.0.1,IP:127.0.0.2" 20200101000000Z 21200101000000Z
signed elsewhere authority "DNS:broker.example" 20200101000000Z 21200101000000Z
signed expired authority "DNS:localhost,IP:127.0.0.1,IP:127.0.0.2" 20200101000000Z 20210101000000Z
signed client authority "DNS:client" 20200101000000Z 21200101000000Z
openssl pkey -in client.pem -aes256 -passout pass:secret -out client-key-encrypted.pem
rm authority-key.pem stranger-key.pem
