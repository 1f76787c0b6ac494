"""A federation on this machine whose active participant also serves HTTP: real processes."""

import json
import time
from dataclasses import replace

import httpx2
from fork_server import Popen
from ports import free_port

from vfbandits.demo.local import LocalFederation, Plan
from vfbandits.demo.rehearsal import Town
from vfbandits.protocol.roster import Terms

READY_S = 60.0
PATIENCE = "deadline_s = 1.0\n"  # four times the default: a busy machine is slow
WIDTHS = {"shop": 3, "bank": 4}


class HttpWorld:
    """``with HttpWorld(tmp_path) as world`` starts shop (active, HTTP) and bank (passive)."""

    def __init__(  # noqa: PLR0913  (each test changes one)
        self,
        folder,
        *,
        terms=None,
        tables="",
        http="insecure = true\n",
        top="",
        widths=None,
        own="",
        popen=Popen,
        model="",
    ):
        widths = widths or WIDTHS
        self.widths = widths
        self.http_port = free_port()
        self.url = f"http://127.0.0.1:{self.http_port}"
        self.town = Town.invent(widths, n_users=8, n_arms=5, seed=0)
        terms = terms or Terms("blockwise", "plain", "per_arm")
        per_arm = terms.layout == "per_arm"
        features = {
            name: self.town.write_features(name, folder / f"{name}.parquet", per_arm=per_arm)
            for name in widths
        }
        features["shop"] = own or features["shop"]
        served = f'[http]\naddress = "127.0.0.1:{self.http_port}"\n{http}\n{tables}'
        home = folder / "federation"
        home.mkdir()
        plan = Plan(widths, terms, features, tables=served, patience=PATIENCE)
        if model:
            plan = replace(plan, model=model)
        self.local = LocalFederation(home, plan, port=free_port(), popen=popen)
        if top:  # keys that stand before the first table
            config = self.local.config("shop")
            config.write_text(top + config.read_text())

    def __enter__(self):
        self.local.__enter__()
        self.wait_until_all_contribute()
        return self

    def __exit__(self, *error):
        self.local.__exit__(*error)

    def client(self, **more):
        return httpx2.Client(base_url=self.url, timeout=10.0, **more)

    def rank(self, client, **more):
        body = {"user": self.town.users[0], "arms": list(self.town.arms), **more}
        return client.post("/v1/rank", json=body)

    def wait_until_all_contribute(self):
        """Until every participant is connected, so that no decision is degraded by chance."""
        limit = time.monotonic() + READY_S
        with self.client() as client:
            while time.monotonic() < limit:
                seen = client.get("/v1/model")
                if seen.status_code != 200:
                    return  # it wants a key: the test looks for itself
                if all(one["connected"] for one in json.loads(seen.text)["participants"]):
                    return
                time.sleep(0.02)
        raise TimeoutError("not all participants connected")
