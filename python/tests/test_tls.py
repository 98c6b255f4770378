"""A broker that speaks TLS, with an authority of its own."""

from __future__ import annotations

import ipaddress
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from support import Program
from webloom import BrokerUnavailable, Client
from webloom.testing import Broker

TOKEN = "0123456789abcdef"


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "webloom test")])
    now = datetime.now(timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    shown, kept = folder / "certificate.pem", folder / "key.pem"
    shown.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    kept.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    kept.chmod(0o600)
    return shown, kept


def test_client_and_worker_trust_the_authority_that_they_are_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEBLOOM_CA_FILE", raising=False)
    shown, key = certificate(tmp_path)
    with Broker(["--tls-cert", str(shown), "--tls-key", str(key), "--token", f"admin:{TOKEN}"]) as broker:
        assert broker.url.startswith("https://")
        with (
            Client(broker.url, token=TOKEN, retries=0) as client,
            pytest.raises(BrokerUnavailable, match="certificate verify failed"),
        ):
            client.list_jobs()
        with (
            Client(broker.url, token=TOKEN, ca_file=shown) as client,
            Program("tasks.py", broker.url, tmp_path / "journal", WEBLOOM_CA_FILE=str(shown), TOKEN=TOKEN),
        ):
            job = client.create_job({"name": "sum", "jobType": "task", "task": {"handler": "sum"}}).id
            run = client.trigger_job(job, {"arguments": [1, 2]})
            assert client.wait_for_run(run.identity, timeout=60).result == 3
