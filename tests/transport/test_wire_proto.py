"""The committed stubs are those of the committed wire.proto."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import vfbandits
from vfbandits.protocol import alignment, application, messages
from vfbandits.transport.rpc import wire_pb2

SOURCE = Path(vfbandits.__file__).parent.parent
FOLDER = Path("vfbandits/transport/rpc")


def test_the_stubs_are_those_that_the_command_in_the_proto_writes(tmp_path):
    pytest.importorskip("grpc_tools", reason="grpcio-tools comes with the development group")
    command = [
        sys.executable, "-m", "grpc_tools.protoc", "-I", str(SOURCE),
        f"--python_out={tmp_path}", f"--mypy_out={tmp_path}", str(SOURCE / FOLDER / "wire.proto"),
    ]  # fmt: skip
    # protoc looks for its plugin for mypy on the path.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    subprocess.run(command, check=True, env={**os.environ, "PATH": path}, capture_output=True)
    for name in ("wire_pb2.py", "wire_pb2.pyi"):
        assert (tmp_path / FOLDER / name).read_text() == (SOURCE / FOLDER / name).read_text()


def test_the_two_directions_share_no_number():
    up = {field.number for field in wire_pb2.ToActive.DESCRIPTOR.fields}
    down = {field.number for field in wire_pb2.ToPassive.DESCRIPTOR.fields}
    assert not up & down


def test_the_fields_have_the_words_of_the_messages():
    for name, wire in wire_pb2.DESCRIPTOR.message_types_by_name.items():
        if name in ("ToActive", "ToPassive", "GatherOutcome"):
            continue
        places = (messages, application, alignment)
        ours = next(getattr(place, name) for place in places if hasattr(place, name))
        words = {field.name for field in wire.fields} - {"arms_per_user"}
        assert words == set(ours.__match_args__)
