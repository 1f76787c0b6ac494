"""A process is ready only after its compiled loops are loaded."""

import subprocess

from http_world import HttpWorld


def test_models_are_warm_before_anybody_may_ask(tmp_path):
    tables = "[campaigns.news]\n[campaigns.news.model]\npolicy = 'lints'\n"
    world = HttpWorld(tmp_path, tables=tables, popen=subprocess.Popen)  # its own interpreter
    with world, world.client() as client:
        assert client.get("/readyz").status_code == 200
        said = [line["event"] for line in world.local.events("shop")]
        assert (
            said.index("models_warmed_up")
            < said.index("grpc_listening")
            < said.index("http_listening")
        )
        (warm,) = [
            line for line in world.local.events("shop") if line["event"] == "models_warmed_up"
        ]
        assert warm["models"] == 2
        assert client.get("/v1/model").json()["version"] == 0  # and none of it was learnt
