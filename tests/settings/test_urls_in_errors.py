"""A URL in an error: its scheme is told, and never a password that it may hold."""

import pytest

from vfbandits.errors import ConfigError, FeatureError, JournalError
from vfbandits.features.redis_hash import RedisStore
from vfbandits.features.scaling import Scaling
from vfbandits.features.sql_engine import build_engine
from vfbandits.journal.inbox.open import open_inbox
from vfbandits.journal.open import open_journal
from vfbandits.settings.address import describe_url
from vfbandits.telemetry.tracing import TracingSettings

HIDDEN = "hunter2"


def redis(url):
    RedisStore(url, prefix="bank", scaling=Scaling.identity(["age"]))


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (f"mysql://ann:{HIDDEN}@host/shop", "a URL with the scheme 'mysql'"),
        (f"ann:{HIDDEN}@host", "16 characters without a scheme"),
        (f"{HIDDEN} ://host", "15 characters without a scheme"),
        (f"://{HIDDEN}", "10 characters without a scheme"),
        ("", "an empty text"),
    ],
)
def test_only_the_scheme_of_a_url_is_told(url, said):
    assert describe_url(url) == said


@pytest.mark.parametrize(
    ("use", "error"),
    [
        (redis, FeatureError),
        (open_journal, JournalError),
        (open_inbox, JournalError),
        (TracingSettings, ConfigError),
    ],
)
def test_a_url_of_a_wrong_kind_is_refused_with_its_scheme(use, error):
    with pytest.raises(error, match="got a URL with the scheme 'mysql'") as caught:
        use(f"mysql://ann:{HIDDEN}@host/shop")
    assert HIDDEN not in str(caught.value)


def test_a_database_url_that_cannot_be_parsed_is_refused_without_being_quoted():
    with pytest.raises(FeatureError, match="got 12 characters without a scheme") as caught:
        build_engine(f"sql:{HIDDEN}@", timeout_s=1.0)
    assert HIDDEN not in str(caught.value)
