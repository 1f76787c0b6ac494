"""The stubs run with every protobuf that is allowed, and neighbours install beside us."""

import re

import pytest
from extras_table import ROOT
from fresh_environment import FreshEnvironment

from vfbandits.transport.rpc import wire_pb2

STUBS = ROOT / "src" / "vfbandits" / "transport" / "rpc" / "wire_pb2.py"
NEIGHBOURS = ("flwr", "kfp", "openmined-psi")
# Reads the message that comes, and writes it again.
ECHO = """
import sys
sys.path.insert(0, sys.argv[1])
import google.protobuf, wire_pb2
message = wire_pb2.ToActive.FromString(bytes.fromhex(sys.argv[2]))
print(google.protobuf.__version__, message.SerializeToString().hex())
"""

pytestmark = pytest.mark.timeout(900)


def resolved(fresh, *requirements):
    """Names and versions that would be installed; of a file, its address."""
    done = fresh.install("--dry-run", *requirements)
    return dict(re.findall(r"^ \+ ([a-z0-9-]+)(?:==| @ )(\S+)", done.stderr, re.MULTILINE))


@pytest.mark.parametrize(("version", "major"), [("==6.30.0", "6"), (">=7.35", "7")])
def test_the_stubs_load_without_a_warning_and_write_the_same_bytes(version, major, tmp_path):
    fresh = FreshEnvironment(tmp_path)
    fresh.install(f"protobuf{version}")
    answer = wire_pb2.Answer(**{field.name: value for field in wire_pb2.Answer.DESCRIPTOR.fields
                                for value in _values(field)})  # fmt: skip
    sent = wire_pb2.ToActive(answer=answer).SerializeToString()
    done = fresh.run("python", "-W", "error", "-c", ECHO, STUBS.parent, sent.hex())
    assert done.returncode == 0, done.stderr
    found, echoed = done.stdout.split()
    assert found.startswith(f"{major}.")
    assert bytes.fromhex(echoed) == sent


def _values(field):
    """One value for a field of numbers, bytes or text; none for any other."""
    one = {
        field.CPPTYPE_STRING: b"row" if field.type == field.TYPE_BYTES else "row",
        field.CPPTYPE_INT64: 7, field.CPPTYPE_UINT64: 7, field.CPPTYPE_UINT32: 7,
        field.CPPTYPE_INT32: 7, field.CPPTYPE_DOUBLE: 0.5, field.CPPTYPE_BOOL: True,
    }.get(field.cpp_type)  # fmt: skip
    if one is not None:
        yield [one] if field.is_repeated else one


@pytest.mark.long
@pytest.mark.parametrize("name", NEIGHBOURS)
def test_we_hold_back_no_neighbour(name, wheel, tmp_path):
    fresh = FreshEnvironment(tmp_path)
    newest = resolved(fresh, name)[name]
    beside = resolved(fresh, f"{name}=={newest}", f"{wheel}[rpc,http,sql,redis]")
    assert {name, "vfbandits", "grpcio", "protobuf"} <= set(beside)


@pytest.mark.long
def test_all_neighbours_install_beside_us(wheel, tmp_path):
    both = resolved(FreshEnvironment(tmp_path), *NEIGHBOURS, f"{wheel}[rpc,http,sql,redis]")
    assert {*NEIGHBOURS, "vfbandits"} <= set(both)
