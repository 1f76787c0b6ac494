"""Configuration files: what is read from them, and the one error that says what is wrong."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vfbandits.campaign.settings import MODES, CampaignSettings
from vfbandits.core.policy import OFUL, LinTS, LinUCB
from vfbandits.core.policy.registry import POLICIES
from vfbandits.errors import ConfigError
from vfbandits.protocol.identity import CERTIFIED_ROLES
from vfbandits.settings.decode import decode, keys_of
from vfbandits.settings.http import CampaignTable, HttpSettings
from vfbandits.settings.model import ModelSettings
from vfbandits.settings.policy import PARAMETERS
from vfbandits.settings.services import (
    ActiveConfig,
    ParticipantConfig,
    load_active,
    load_client,
    load_passive,
    load_place,
)

ACTIVE = 'name = "shop"\nrole = "active"\naddress = "0.0.0.0:7443"\n'
PASSIVE = ACTIVE.replace("active", "passive").replace("shop", "bank")
FILE = '[features]\nkind = "file"\npath = "bank.csv"\nkey = ["user"]\ncolumns = ["age"]\n'
HTTP = '[http]\naddress = "127.0.0.1:0"\n'
HIDDEN = "pa55-w0rd"
URL = f"postgresql://me:{HIDDEN}@db.example/shop"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "shop.toml"


def active(path, text):
    path.write_text(ACTIVE + text, encoding="utf-8")
    return load_active(path)


def refusal(path, text, load=load_active, head=ACTIVE):
    path.write_text(head + text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load(path)
    message = str(caught.value)
    assert message.count("\n") == 0
    assert len(message) < 500
    return message


def test_a_short_file_has_every_default(path):
    settings = active(path, "")
    assert settings.identity == path.parent / "identity"
    assert settings.roster == path.parent / "roster.signed"
    assert settings.state == path.parent / "state"
    assert (settings.journal, settings.journal_target, settings.journal_key) == (True, "", None)
    assert (settings.http, settings.features, settings.accept_loss) == (None, None, None)
    assert settings.model.policy == LinUCB(beta=0.5)
    (plan,) = settings.campaigns
    assert plan.name == "default"
    assert plan.settings == CampaignSettings(LinUCB(beta=0.5))


def test_relative_paths_start_at_the_file_and_absolute_ones_stay(path):
    settings = active(
        path, f'state = "/srv/state"\njournal_key = "k/j.key"\n{HTTP}keys = "keys.json"\n{FILE}'
    )
    assert settings.state == Path("/srv/state")
    assert settings.journal_key == path.parent / "k" / "j.key"
    assert settings.http.keys == path.parent / "keys.json"
    assert settings.features.path == path.parent / "bank.csv"


def test_whole_numbers_are_read_where_any_number_will_do(path):
    settings = active(
        path, f"[model]\nridge = 2\nbeta = 1\n[patience]\nchange_s = 5\n{HTTP}rate = 7"
    )
    assert settings.model.policy == LinUCB(beta=1.0)
    numbers = (settings.model.ridge, settings.patience.change_s, settings.http.rate)
    assert numbers == (2.0, 5.0, 7.0)
    assert {type(number) for number in numbers} == {float}


def test_a_policy_takes_the_parameters_beside_its_name(path):
    text = "[model]\nbeta = { noise = 0.1, delta = 0.2 }\n[campaigns.mail.model]\n"
    settings = active(path, text + 'policy = "lints"\nspace = "arm"\nfloor = 0.25')
    default, mail = settings.campaigns
    assert default.settings.policy == LinUCB(beta=OFUL(noise=0.1, delta=0.2))
    assert mail.settings.policy == LinTS(space="arm")
    assert (mail.name, mail.settings.floor, default.settings.floor) == ("mail", 0.25, 0.0)


def test_no_default_reward_is_learnt_where_the_file_says_so(path):
    settings = active(path, "[campaigns.default]\nlearn_default = false")
    assert settings.campaigns[0].settings.default_reward is None


UNKNOWN = [
    ("jornal = true", "jornal is not a key, but journal is"),
    (f"{HTTP}adress = 'x'", "http.adress is not a key, but http.address is"),
    ("[model]\nrigde = 1", "model.rigde is not a key, but model.ridge is"),
    ("[model.beta]\nnoize = 1", "model.beta.noize is not a key, but model.beta.noise is"),
    ("[patience]\ndeadline = 1", "patience.deadline is not a key, but patience.deadline_s is"),
    ("[campaigns.mail]\nmood = 1", "campaigns.mail.mood is not a key, but campaigns.mail.mode is"),
    (
        '[campaigns."a b".model]\nbeta = 1\nseeed = 2',
        'campaigns."a b".model.seeed is not a key, but campaigns."a b".model.seed is',
    ),
    (f"{FILE}colums = []", "features.colums is not a key, but features.columns is"),
    # below a table although it is a key of another
    (f"{HTTP}journal_target = 'x'", "http.journal_target is not a key, but journal_target is"),
    ("holdback = 0.1", "holdback is not a key, but campaigns.NAME.holdback is"),
    ("accept_loss = 'me'", "accept_loss is not a key; wanted name, role, address"),
    ("[reconnect]\nfirst_s = 1", "reconnect is not a key; wanted name, role, "),
    ('"\\u001b[31m" = 1', r'"\u001b[31m" is not a key'),
]


@pytest.mark.parametrize(("text", "says"), UNKNOWN)
def test_an_unknown_key_is_named_with_its_path_and_the_nearest_right_one(path, text, says):
    assert refusal(path, text).startswith(f"shop.toml: {says}")


WRONG = [
    ("journal = 1", "journal must be true or false, got 1"),
    ("snapshot_every = true", "snapshot_every must be a whole number of at least 0, got true"),
    ("snapshot_every = 1.0", "snapshot_every must be a whole number of at least 0, got 1.0"),
    ("snapshot_every = -1", "snapshot_every must be a whole number of at least 0, got -1"),
    ("envelopes = 3", "envelopes must be text, got 3"),
    ("envelopes = ''", "envelopes must be text, got empty text"),
    ("journal_target = ''", "journal_target must be text, got empty text"),
    ("http = 'on'", "http must be a table, got text"),
    ("[[http]]\naddress = 'x'", "http must be a table, got a list"),
    ("[journal]\non = true", "journal must be true or false, got a table"),
    ("[http]\nrate = 1", "http.address is missing, wanted text, not empty"),
    ("[http]\naddress = ''", "http.address must be text, not empty, got empty text"),
    (f"{HTTP}rate = true", "http.rate must be a number above 0, got true"),
    (f"{HTTP}rate = 0", "http.rate must be a number above 0, got 0"),
    (f"{HTTP}rate = nan", "http.rate must be a finite number, got nan"),
    (f"{HTTP}rate = inf", "http.rate must be a finite number, got inf"),
    (f"{HTTP}rate = 1e999", "http.rate must be a finite number, got inf"),
    (f"{HTTP}rate = 0x{'f' * 5000}", "http.rate must be a finite number, got one of 20000 bits"),
    (f"{HTTP}rate = 2026-11-17", "http.rate must be a number above 0, got a date or time"),
    (f"{HTTP}burst = 0.5", "http.burst must be a number of at least 1, got 0.5"),
    (f"{HTTP}tls = 'off'", "http.tls must be one of proxy, server, got 'off'"),
    (f"{HTTP}hosts = 'a'", "http.hosts must be a list, got text"),
    (f"{HTTP}hosts = ['a', 3]", "http.hosts[1] must be text, not empty, got 3"),
    (f"{HTTP}hosts = ['']", "http.hosts[0] must be text, not empty, got empty text"),
    (
        f"{HTTP}trusted_proxies = ['::/0']",
        "http.trusted_proxies must not be all addresses, got ::/0",
    ),
    (f"journal = false\n{HTTP}", "[http] answers from the journal, so journal must be true"),
    ("[model]\npolicy = 'ucb'", "model.policy must be one of inverse_gap, lingreedy, lints, "),
    ("[model]\nbeta = '1'", "model.beta must be a number or a table, got text"),
    ("[model]\nbeta = -1", "model.beta must be a number of at least 0, got -1.0"),
    ("[model.beta]\ndelta = 0.1", "model.beta.noise is missing, wanted a number"),
    ("[model.beta]\nnoise = 1\ndelta = 3", "model.beta.delta must be between 0 and 1, got 3"),
    ("[model]\nepsilon = 0.1", "model.epsilon goes with policy 'lingreedy', got policy 'linucb'"),
    ("[model]\nseed = -1", "model.seed must be a whole number of at least 0, got -1"),
    ("[model]\ndiscount = 2", "model.discount must be a number above 0 and of at most 1, got 2"),
    ("[patience]\nchange_s = 0", "patience.change_s must be above 0, got 0.0"),
    ("[patience]\nfailures_to_open = true", "patience.failures_to_open must be a whole number"),
    ("[campaigns]\nmail = 3", "campaigns.mail must be a table, got 3"),
    ("[campaigns.a]\n[campaigns.b]\nholdback = 2", "campaigns.b.holdback must be a number of at"),
    ("[campaigns.b]\nmode = 'off'", "campaigns.b.mode must be one of frozen, learn, shadow, got"),
    ("[campaigns.b]\nreward_min = 3\nreward_max = 2", "campaigns.b.reward_min must be below rewa"),
    ("[campaigns.default.model]\nbeta = 1", "campaigns.default.model must be [model] itself"),
    (
        "[campaigns.'../../x']",
        "campaigns must have names of letters, digits, '-', '_' or '.', got '.",
    ),
    ("[campaigns.'']", "campaigns must have names of letters, digits, '-', '_' or '.', got ''"),
    (f"{FILE}url = 'x'", "features: features of kind file need path, got path and url"),
]


@pytest.mark.parametrize(("text", "says"), WRONG)
def test_a_wrong_value_is_refused_with_its_path_what_was_wanted_and_what_came(path, text, says):
    assert refusal(path, text).startswith(f"shop.toml: {says}")


@pytest.mark.parametrize(
    ("load", "head", "says"),
    [
        (load_active, "", "name is missing, wanted text"),
        (load_active, PASSIVE, "role must be active, got 'passive'"),
        (load_passive, ACTIVE, "role must be passive, got 'active'"),
        (load_passive, PASSIVE, "features is missing, wanted a table"),
        (
            load_passive,
            f"{PASSIVE}[reconnect]\nmost_s = 0\n",
            "reconnect.most_s must be a number ab",
        ),
        (load_place, 'name = "x"\naddress = "y"', "role is missing, wanted one of active, appli"),
        (load_client, ACTIVE.replace("active", "boss"), "role must be one of active, application"),
        (load_client, ACTIVE.replace("active", "operator") + "rolls = 1", "rolls is not a key"),
    ],
)
def test_a_file_of_another_role_is_refused(path, load, head, says):
    assert refusal(path, "", load, head).startswith(f"shop.toml: {says}")


def test_an_application_reads_the_common_keys_of_a_participant_whatever_the_others_are(path):
    path.write_text(f'{ACTIVE}rolls = 1\n[http]\nkey = "{URL}"')
    assert load_client(path).address == load_place(path).address == "0.0.0.0:7443"


@pytest.mark.parametrize(
    "text",
    ["a = " + "[" * 5000, "a = " + "9" * 5000, "a = ", "[a", "x"],
)
def test_broken_toml_is_refused(path, text):
    assert "must be a TOML file, but" in refusal(path, text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "[campaigns.mail]\n[ campaigns.mail ] # again\n",
            "line {2}: the table [campaigns.mail] comes twice, first in line {1}; join its keys",
        ),
        ("http.keys = 1\n[http]\n", "line {2}: the table [http] comes twice; join its keys"),
        ("name = 1", "line {1}: name comes twice in its table"),
        (f'name = """\n{URL}={URL}"""', "line {2}: a key comes twice in its table"),
    ],
)
def test_a_table_or_a_key_that_comes_twice_is_named_with_its_lines(path, text, says):
    above = len(ACTIVE.splitlines())
    said = says.format(*(above + number for number in range(3)))
    assert refusal(path, text).endswith(f"shop.toml, {said}")


@pytest.mark.parametrize(
    "text",
    [
        f'journal_targt = "{URL}"',
        f'journal_target = ["{URL}"]',
        f'[journal_target]\nurl = "{URL}"',
        f'journal = "{URL}"',
        f'snapshot_every = "{URL}"',
        f'{HTTP}tls = "{URL}"',
        f'[features]\nurl = "{URL}"',
        f'{FILE}url = "{URL}"',
        f'{FILE}timeout_s = "{URL}"',
        f'[features]\nkind = "{URL}"\nkey = ["u"]',
        f'[features]\nkind = "sql"\nkey = ["u"]\ncolumns = ["a"]\nurl = "{URL}"',
        f'[features]\nkind = "sql"\nkey = ["u"]\ncolumns = ["a"]\nurl = ["{URL}"]',
        f'[campaigns.mail]\nmode = "{URL}"',
    ],
)
def test_no_error_repeats_a_password(path, text):
    message = refusal(path, text)
    assert HIDDEN not in message
    assert "db.example" not in message


def test_settings_do_not_show_a_password(path):
    features = '[features]\nkind = "sql"\ntable = "t"\nkey = ["u"]\ncolumns = ["a"]\n'
    settings = active(path, f'journal_target = "{URL}"\n{features}url = "{URL}"')
    assert HIDDEN not in repr(settings)
    assert settings.journal_target == settings.features.find_url() == URL


def test_settings_cannot_be_changed(path):
    settings = active(path, HTTP)
    for part, name in ((settings, "name"), (settings.http, "rate"), (settings.model, "ridge")):
        with pytest.raises(AttributeError):
            setattr(part, name, 1)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
KEYS = sorted(
    {key for kind in (ActiveConfig, HttpSettings, CampaignTable) for key in keys_of(kind)}
)


@given(
    st.dictionaries(st.sampled_from(KEYS), VALUES), st.sampled_from([ActiveConfig, HttpSettings])
)
def test_whatever_a_document_holds_it_is_read_or_refused_with_one_line(document, kind):
    try:
        decode(document, kind, where="x.toml")
        message = "x.toml: it was read"
    except ConfigError as error:
        message = str(error)
    assert re.fullmatch(r"x\.toml: [^\n]{5,600}", message)


def test_the_choices_of_a_file_are_those_of_the_program():
    """Structs must write choices out, for the type checker; the program has them as tuples."""

    def choices(kind, key):
        return set(keys_of(kind)[key].__args__)

    assert choices(ParticipantConfig, "role") == set(CERTIFIED_ROLES)
    assert choices(CampaignTable, "mode") == set(MODES)
    assert choices(ModelSettings, "policy") == set(POLICIES)
    parameters = [name for kind in POLICIES.values() for name in kind.__dataclass_fields__]
    assert sorted(PARAMETERS) == sorted(parameters)


def test_the_defaults_of_a_campaign_are_those_of_the_program():
    assert CampaignTable().plan("", ModelSettings()).settings == CampaignSettings(LinUCB(beta=0.5))
