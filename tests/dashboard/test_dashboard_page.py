"""The page in a real Chromium, against a real server."""

import re
import time
from math import nan

import msgspec
import pytest
from browser import chromium
from invented_decisions import LINKS, ranked, tell, traffic
from page_server import PageServer
from playwright.sync_api import expect

from vfbandits.campaign.observer import Guarded, Reconfigured
from vfbandits.client.schemas import GuardrailView, Tripped
from vfbandits.dashboard.observatory import Observatory
from vfbandits.dashboard.view import Facts, SharesView

LONG = "an-arm-with-a-name-that-has-no-place-to-break-" * 4

WATCHING = GuardrailView(
    *("watching", True, 0.05, 0.0, 100, 1_794_850_000.0),
    *(18_204, 1_011, 63, 0.0214, -0.0101, 0.0529, None),
)
TRIPPED = GuardrailView(
    *("tripped", True, 0.05, 0.0, 100, 1_794_850_000.0),
    *(18_204, 1_011, 63, -0.0512, -0.0893, -0.0131),
    Tripped(1_794_870_000.0, 17_950, 1_003, 0.191, 0.242, -0.0508, -0.0891, -0.0125, 0.025),
)
FACTS = Facts("ranker", "shadow", 3, 2, "mask", 18_402, 1, 51_234, 7.25)
LEARNING = msgspec.structs.replace(FACTS, mode="learn")


def feed(sky, stream):
    for seen in stream:
        tell(sky, seen)


def invented():
    sky = Observatory(
        "Retail alliance",
        ["newsletter", "quiet"],
        participants=lambda: LINKS,
        waiting=lambda campaign: 1204 if campaign == "newsletter" else 0,
        norm=lambda _: 1.75,
        facts=lambda name: {"long": None, "stopped": LEARNING}.get(name, FACTS),
        guardrail={"newsletter": WATCHING, "stopped": TRIPPED}.get,
        link_changes=lambda: [(time.time() - 60.0, "telco", "participant_left")],
    )
    now = time.time()
    feed(sky, traffic("newsletter", until=now, seconds=290))
    feed(sky, traffic("shadowed", until=now, seconds=60, group="shadow", hides_parts=True))
    feed(sky, traffic("stopped", until=now, seconds=30, group="guardrail"))
    sky.on_guardrail(Guarded("stopped", "the baseline is shown", now - 20.0, is_tripped=True))
    sky.on_ranked(
        [ranked("long", campaign="long", at=now, arm=LONG, user=LONG, parts={LONG: -0.5})]
    )
    return sky


@pytest.fixture(scope="module")
def browser():
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def server():
    with PageServer(invented()) as served:
        yield served


@pytest.fixture
def opened(browser, server):
    """Opens the page; whatever a test does there, it asks no other host and logs no error."""
    contexts, complaints, hosts = [], [], set()

    def go(hash_="", **options):
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda said: complaints.append(said.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request", lambda asked: hosts.add(re.sub(r"^(\w+://[^/]*/|data:).*", r"\1", asked.url))
        )
        page.goto(server.url + hash_)
        expect(page.locator("main")).to_be_visible()
        return page

    yield go
    for context in contexts:
        context.close()
    assert complaints == []
    assert hosts <= {server.url, "data:"}


def test_the_page_shows_the_numbers_of_the_campaign(opened, server):
    page = opened()
    expect(page.locator("h1")).to_have_text("Retail alliance")
    page.locator("#live").click()
    shown = page.evaluate("fetch('v1/dashboard?campaign=newsletter&minutes=5').then(r => r.json())")
    mean, baseline = shown["rewards"]["policy"]["mean"], shown["rewards"]["baseline"]["mean"]
    expect(page.locator("#tile-waiting .figure")).to_have_text("1,204")
    expect(page.locator("#tile-reward .figure")).to_contain_text(f"{mean:.3f}")
    expect(page.locator("#tile-reward .note")).to_contain_text(
        f"baseline {baseline:.3f} (holdback)"
    )
    lift = shown["rewards"]["lift"]
    relative = lift["relative"]
    figure = f"{lift['difference']:.3f}" if relative is None else f"{100 * relative:.1f} %"
    expect(page.locator("#tile-reward .lift")).to_contain_text(f"lift +{figure} ±")
    expect(page.locator("#tile-degraded .figure")).to_have_text(
        f"{100 * shown['totals']['degraded']:.1f} %"
    )
    expect(page.locator("#charts svg")).to_have_count(6)
    expect(page.locator("#chart-reward polygon.band")).to_have_count(2)
    expect(page.locator("#chart-arms .entry")).to_have_count(8)
    expect(page.locator("#participants tr")).to_have_count(4)
    expect(page.locator("#participants tr", has_text="bank")).to_contain_text("51,190 / 51,204")
    expect(page.locator("#participants tr", has_text="telco")).to_contain_text("not connected")
    expect(page.locator("#decisions tr")).to_have_count(200)


def test_a_missing_participant_is_named_in_a_banner_with_the_time_since_when(opened):
    page = opened()
    banner = page.locator("#missing")
    expect(banner).to_be_visible()
    since = page.evaluate(f"new Date({LINKS['telco']['since']} * 1000).toLocaleTimeString('en-GB')")
    expect(banner.locator("p", has_text="telco")).to_contain_text("is not connected since")
    expect(banner.locator("p", has_text="telco")).to_contain_text(since)
    expect(banner.locator("p", has_text="news")).to_contain_text("does not answer in time")
    expect(banner.locator("p")).to_have_count(2)


def test_a_policy_that_was_stopped_is_said_in_a_banner_with_the_figures(opened):
    page = opened("#campaign=stopped&minutes=5")
    banner = page.locator("#tripped")
    expect(banner).to_be_visible()
    expect(banner).to_contain_text("The guardrail shows the baseline since")
    expect(banner).to_contain_text("the policy brought 0.191 per event, the holdback 0.242")
    expect(banner).to_contain_text(
        "Difference −0.051 (97.5 % interval −0.089 to −0.013) over 18,953 events"
    )
    expect(page.locator("#mode")).to_have_text("On baseline")
    expect(page.locator("#guardrail-words")).to_contain_text("until an operator re-arms it")
    expect(page.locator("#decisions .tag").first).to_have_text("guardrail")
    expect(page.locator("#chart-reward .flag.guardrail")).to_have_count(1)


def test_policy_and_holdback_are_compared_in_plain_words_and_looking_often_is_allowed(opened):
    page = opened("#campaign=newsletter&minutes=5")
    expect(page.locator("#tripped")).to_be_hidden()
    expect(page.locator("#guardrail-figure")).to_have_text("+0.021 per event (−0.010 to +0.053)")
    words = page.locator("#guardrail-words")
    expect(words).to_contain_text("The guardrail is armed")
    expect(words).to_contain_text("95 % interval over 18,204 events of the policy, 1,011 of the")
    expect(words).to_contain_text("so you may look as often as you like")
    expect(words).to_contain_text("63 more wait for a reward")
    box = page.locator("#guardrail-line").bounding_box()
    zero = page.locator("#guardrail-line .zero").bounding_box()
    assert box["x"] < zero["x"] < box["x"] + box["width"]


def test_a_campaign_without_a_holdback_has_no_comparison(opened):
    page = opened("#campaign=shadowed&minutes=5")
    expect(page.locator("#guardrail")).to_be_hidden()


def test_features_that_drift_are_named_with_their_participant(opened):
    page = opened("#campaign=newsletter&minutes=5")
    rows = page.locator("#participants tr")
    expect(rows.filter(has_text="shop").locator(".drift")).to_have_text("mean off by 0.81 sd")
    expect(rows.filter(has_text="bank").locator(".drift")).to_have_text("steady")
    expect(rows.filter(has_text="news").locator(".drift")).to_have_text("31 % missinglength² ×1.84")
    expect(rows.filter(has_text="telco").locator(".drift")).to_have_text("–")


def test_the_mode_is_a_badge_and_the_versions_in_force_stand_below_the_tiles(opened):
    page = opened()
    expect(page.locator("#mode")).to_have_text("Shadow")
    versions = page.locator("#versions")
    for text in (
        "ranker", "number 2", "epoch 3", "after 18,402 rewards", "version 1",
        "51,234 records, 7.25 s behind",
    ):  # fmt: skip
        expect(versions).to_contain_text(text)
    page.locator("#campaign").select_option("long")
    expect(page.locator("#mode")).to_be_hidden()
    expect(versions).to_be_hidden()


def test_changes_of_settings_and_links_are_marks_on_every_time_axis(opened, server):
    at = time.time() - 90.0
    changed = Reconfigured("newsletter", b'{"mode": "learn"}', b'{"mode": "shadow"}', at)
    server.observatory.on_configured(changed)
    page = opened()
    expect(page.locator("#charts svg .flag.settings")).to_have_count(6)
    expect(page.locator("#charts svg .flag.here, #charts svg .flag.away")).to_have_count(6)
    title = page.locator("#chart-reward .flag.settings title").text_content()
    assert title.endswith("mode: learn → shadow")
    page.locator("#live").click()
    page.locator("#chart-reward").scroll_into_view_if_needed()
    box = page.locator("#chart-reward svg").bounding_box()
    flag = page.locator("#chart-reward .flag.settings path").bounding_box()
    page.mouse.move(flag["x"] + flag["width"] / 2, box["y"] + box["height"] / 2)
    expect(page.locator("#chart-reward .tip .happened")).to_have_text("mode: learn → shadow")


def with_stopped_clock(page):
    """Loads the page again with a clock that only the test moves; gives what it asks from then."""
    page.clock.install()
    page.reload()
    expect(page.locator("#decisions tr")).to_have_count(200)
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    return asked


def test_a_decision_appears_without_reloading_and_not_while_the_page_is_paused(opened, server):
    page = opened()
    asked = with_stopped_clock(page)
    first = page.locator("#decisions tr").first
    server.observatory.on_ranked([ranked("brand-new", campaign="newsletter", at=time.time())])
    page.clock.run_for(2_000)
    expect(first).to_contain_text("brand-new")
    assert len(asked) == 1
    page.locator("#live").click()
    expect(page.locator("#live")).to_have_text("Paused")
    server.observatory.on_ranked([ranked("newer", campaign="newsletter", at=time.time())])
    page.clock.run_for(60_000)
    assert len(asked) == 1
    page.locator("#live").click()
    expect(first).to_contain_text("newer")


def test_a_hidden_tab_does_not_ask_and_asks_when_it_is_seen_again(opened):
    page = opened()
    asked = with_stopped_clock(page)
    hide = "(is) => { Object.defineProperty(document, 'hidden', {value: is, configurable: true});"
    hide += " document.dispatchEvent(new Event('visibilitychange')); }"
    page.evaluate(hide, arg=True)
    page.clock.run_for(60_000)
    assert asked == []
    with page.expect_request("**/v1/dashboard*"):
        page.evaluate(hide, arg=False)
        page.clock.run_for(1)


def test_the_filter_keeps_rows_by_user_arm_or_event(opened, server):
    page = opened()
    page.locator("#live").click()
    one = page.locator("#decisions tr").nth(7)
    event, user = one.get_attribute("data-event"), one.locator(".user").inner_text()
    box = page.get_by_role("searchbox", name="Filter")
    box.fill(event.upper())
    expect(page.locator("#decisions tr")).to_have_count(1)
    box.fill(user)
    rows = page.locator("#decisions tr")
    assert set(rows.locator(".user").all_inner_texts()) == {user}
    box.fill("savings")
    assert set(rows.locator(".arm .name").all_inner_texts()) == {"savings"}
    expect(page.locator("#decisions-count")).to_have_text(f"{rows.count()} of 200")
    box.fill("<b>nobody</b>")
    expect(page.locator("#decisions-empty")).to_have_text(
        "None of the last 200 matches “<b>nobody</b>”."
    )
    box.fill("")
    expect(rows).to_have_count(200)


def test_a_click_on_a_decision_tells_why(opened):
    page = opened()
    page.locator("#live").click()
    page.locator("#decisions tr").nth(2).click()
    why = page.get_by_role("dialog", name="Why this arm")
    expect(why).to_be_visible()
    names = why.locator(".step .name").all_inner_texts()
    assert names[0] == "shop"
    assert names[-3:] == ["Estimate", "Bonus", "Score"]
    values = [float(text.replace("−", "-")) for text in why.locator(".step .n").all_inner_texts()]
    assert sum(values[:-3]) == pytest.approx(values[-3], abs=0.003)
    assert values[-3] + values[-2] == pytest.approx(values[-1], abs=0.002)
    ends = [why.locator(".step .track i:last-child").nth(i).bounding_box() for i in (-3, -2, -1)]
    assert ends[1]["x"] + ends[1]["width"] == pytest.approx(ends[2]["x"] + ends[2]["width"], abs=2)
    page.keyboard.press("Escape")
    expect(why).to_be_hidden()


def test_why_opens_by_keyboard_and_says_when_the_mask_hides_the_parts(opened):
    page = opened("#campaign=shadowed&minutes=60")
    page.locator("#live").click()
    page.locator("#decisions button").first.focus()
    page.keyboard.press("Enter")
    why = page.get_by_role("dialog", name="Why this arm")
    expect(why).to_contain_text("hidden by the mask")
    expect(why).to_contain_text("shadow mode: the baseline is shown")
    expect(page.locator("#tile-agreement .note")).to_have_text("in shadow mode")
    expect(page.locator("#participants tr").first).to_contain_text("hidden by the mask")
    page.get_by_role("button", name="Close").click()
    expect(why).to_be_hidden()


def test_range_and_campaign_are_chosen_and_kept_in_the_address(opened):
    page = opened()
    page.get_by_role("button", name="24 hours").click()
    expect(page.locator("#tile-rate .note")).to_contain_text("in 24 h")
    page.get_by_label("Campaign").select_option("quiet")
    expect(page.locator("#decisions-empty")).to_contain_text("No decisions yet")
    expect(page.locator("#chart-reward .empty")).to_have_text("No rewards yet")
    expect(page.locator("#tile-reward .note")).to_have_text("No rewards yet")
    page.reload()
    expect(page.get_by_label("Campaign")).to_have_value("quiet")
    expect(page.get_by_role("button", name="24 hours")).to_have_attribute("aria-pressed", "true")


def ground(page):
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


def test_the_theme_follows_the_system_until_it_is_chosen(opened, tmp_path):
    page = opened(color_scheme="dark")
    dark = ground(page)
    toggle = page.get_by_role("button", name="Dark theme")
    expect(toggle).to_have_attribute("aria-pressed", "true")
    page.emulate_media(color_scheme="light")
    light = ground(page)
    assert light != dark
    toggle.click()
    assert ground(page) == dark
    page.reload()
    expect(toggle).to_have_attribute("aria-pressed", "true")
    assert ground(page) == dark
    page.screenshot(path=tmp_path / "dark.png")
    toggle.click()
    assert ground(page) == light
    page.screenshot(path=tmp_path / "light.png")
    assert (tmp_path / "dark.png").read_bytes() != (tmp_path / "light.png").read_bytes()


CONTRAST = """() => {
  const paint = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const light = (colour) => {
    paint.fillStyle = colour; paint.fillRect(0, 0, 1, 1);
    return [...paint.getImageData(0, 0, 1, 1).data].slice(0, 3).map((v) => v / 255)
      .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
      .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  };
  const under = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor;
      if (colour !== "rgba(0, 0, 0, 0)") return colour;
    }
    return "white";
  };
  const found = {};
  for (const what of ["h1", ".tile h2", ".figure span", ".note", ".lift", ".range button",
      ".title p", ".legend .name", ".axis", "thead th", ".time", ".link", ".tag", ".tag.warn",
      ".who small"]) {
    const element = document.querySelector(what);
    const style = getComputedStyle(element);
    const ink = element.closest("svg") ? style.fill : style.color;
    const [a, b] = [light(ink), light(under(element))];
    found[what] = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  }
  return found;
}"""


def test_text_is_readable_in_both_themes(opened):
    page = opened(color_scheme="light")
    expect(page.locator(".tag.warn").first).to_be_attached()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        ratios = page.evaluate(CONTRAST)
        assert {what: ratio for what, ratio in ratios.items() if ratio < 4.5} == {}


@pytest.mark.parametrize("campaign", ["newsletter", "long", "quiet"])
def test_nothing_is_wider_than_the_screen(opened, campaign):
    page = opened(f"#campaign={campaign}")
    page.locator("#live").click()
    if campaign != "quiet":
        page.locator("#decisions tr").first.click()
    parts = "['html', '#decisions-scroll', 'dialog[open]'].map(w => document.querySelector(w))"
    too_wide = f"{parts}.filter(e => e && e.scrollWidth > e.clientWidth).map(e => e.outerHTML)"
    for width in (320, 375, 768, 1440):
        page.set_viewport_size({"width": width, "height": 720})
        # Charts are drawn again a moment after the screen has changed.
        page.wait_for_function(f"document.documentElement.scrollWidth <= {width}")
        assert page.evaluate(too_wide) == []


def test_a_chart_is_read_with_the_pointer_and_with_arrow_keys(opened):
    page = opened()
    page.locator("#live").click()
    chart = page.locator("#chart-reward svg")
    chart.hover()
    tip = page.locator("#chart-reward .tip")
    expect(tip).to_contain_text("policy")
    expect(tip).to_contain_text("±")
    page.mouse.move(0, 0)
    expect(tip).to_be_hidden()
    rate = page.locator("#chart-rate svg")
    rate.focus()
    tip = page.locator("#chart-rate .tip")
    page.keyboard.press("ArrowLeft")
    expect(tip).to_contain_text("decisions per second")
    latest = tip.inner_text()
    page.keyboard.press("ArrowLeft")
    assert tip.inner_text() != latest
    page.keyboard.press("ArrowRight")
    assert tip.inner_text() == latest
    page.locator("#live").press("Enter")
    expect(tip).to_be_hidden()
    expect(chart).to_have_attribute(
        "aria-label", re.compile(r"Reward rate, latest: .*policy 0\.\d+")
    )


def test_motion_stops_for_those_who_asked_for_it(opened):
    moving = "getComputedStyle(document.querySelector('#live .dot')).animationName"
    page = opened()
    assert page.evaluate(moving) == "breathe"
    page.emulate_media(reduced_motion="reduce")
    assert page.evaluate(moving) == "none"


def test_the_page_outlives_its_server(browser):
    with PageServer(invented()) as server:
        page = browser.new_page()
        page.goto(server.url)
        expect(page.locator("#decisions tr")).to_have_count(200)
        server.stop()
        expect(page.locator("#banner")).to_contain_text("The server does not answer.")
        expect(page.locator("#live")).to_have_text("Offline")
        expect(page.locator("#decisions tr")).to_have_count(200)
        server.observatory.on_ranked([ranked("after", campaign="newsletter", at=time.time())])
        server.start()
        page.get_by_role("button", name="Try now").click()
        expect(page.locator("#banner")).to_be_hidden()
        expect(page.locator("#decisions tr").first).to_contain_text("after")
        expect(page.locator("#live")).to_have_text("Live")
        page.close()


def test_a_server_that_wants_a_key_is_given_one_and_it_stays_in_the_tab(browser):
    with PageServer(invented(), key="sesame") as server:
        page = browser.new_page()
        page.goto(server.url)
        box = page.get_by_role("textbox", name="API key")
        expect(box).to_be_focused()
        expect(page.locator("main")).to_be_hidden()
        box.fill("wrong")
        page.keyboard.press("Enter")
        expect(page.locator("#gate-text")).to_have_text("The server refuses this key.")
        box.fill("sesame")
        page.get_by_role("button", name="Show").click()
        expect(page.locator("#decisions tr")).to_have_count(200)
        expect(page.locator("#gate")).to_be_hidden()
        assert page.evaluate("[localStorage.length, sessionStorage.getItem('key')]") == [
            0,
            "sesame",
        ]
        assert "sesame" not in page.url
        page.reload()
        expect(page.locator("main")).to_be_visible()
        page.close()


def test_a_link_may_bring_the_key_which_does_not_stay_in_the_address(browser):
    with PageServer(invented(), key="sesame") as server:
        page = browser.new_page()
        page.goto(f"{server.url}#campaign=quiet&key=sesame")
        expect(page.get_by_label("Campaign")).to_have_value("quiet")
        expect(page.locator("#gate")).to_be_hidden()
        assert "sesame" not in page.url
        page.reload()
        expect(page.locator("main")).to_be_visible()
        page.close()


def test_names_are_text_and_never_markup(opened, server):
    mark = "<img src=x onerror=alert(1)>"
    server.observatory.on_ranked(
        [
            ranked(
                "markup", campaign="markup", at=time.time(), arm=mark, user=mark, parts={mark: 0.5}
            )
        ]
    )
    page = opened("#campaign=markup")
    page.locator("#decisions tr").first.click()
    expect(page.locator("#why .chosen strong")).to_have_text(mark)
    expect(page.locator("img")).to_have_count(0)


# --- secret shares ----------------------------------------------------------------------------

SHARES = SharesView(
    helper="notary",
    has_features=False,
    learns="the arm of a decision",
    away="",
    is_helper_away=False,
    released=9_900,
    alone=100,
    queued=3,
    windows=640,
    decisions=10_240,
    lasts_s=4 * 86_400.0,
    is_ending=False,
)
SHARED_LINKS = {
    "shop": {"width": 10},
    "bank": {"width": 10, "connected": True, "circuit": "closed", "asks": 25, "answers": 25},
    "notary": {"width": 0, "connected": True, "circuit": "closed", "since": 1_794_850_000.0},
}


@pytest.fixture(scope="module")
def shared(browser):
    """A page on secret shares whose facts a test may change, and those facts."""
    facts = {"shares": SHARES, "links": SHARED_LINKS}
    sky = Observatory(
        "Retail alliance",
        ["default"],
        participants=lambda: facts["links"],
        facts=lambda _: msgspec.structs.replace(LEARNING, protection="shares"),
        shares=lambda: facts["shares"],
    )
    now = time.time()
    names = {"contributors": ("shop", "bank"), "missing": ()}
    hidden = {"estimate": nan, "bonus": nan, "parts": None, "probability": nan}
    for place in range(20):
        at = now - 20.0 + place
        sky.on_ranked([ranked(f"e{place}", campaign="default", at=at, **names, **hidden)])
    with PageServer(sky) as served:
        page = browser.new_page()
        page.goto(served.url)
        expect(page.locator("main")).to_be_visible()
        yield page, facts
        page.close()


def test_the_page_says_what_is_released_on_secret_shares_and_what_is_left(shared):
    page, _ = shared
    card = page.locator("#shares")
    expect(card).to_be_visible()
    for text in (
        "the arm of a decision",
        "notary",
        "without features, connected",
        "9,900 by both servers",
        "100 on own features alone (1.0 %)",
        "10,240 decisions",
        "640 windows, about 4 d at the present pace",
    ):
        expect(card).to_contain_text(text)
    expect(page.locator("#ending")).to_be_hidden()
    expect(page.locator("#missing")).to_be_hidden()
    expect(page.locator("#versions")).to_contain_text("Protection")
    expect(page.locator("#chart-norm")).to_contain_text("the model is secret-shared")
    expect(page.locator("#chart-drift")).to_contain_text("Estimates are secret-shared")
    row = page.locator("#participants tr", has_text="notary")
    expect(row).to_contain_text("helper")
    expect(row.locator("[data-label='Features']")).to_have_text("none")
    bank = page.locator("#participants tr", has_text="bank")
    expect(bank).to_contain_text("secret-shared")
    page.locator("#decisions tr").first.locator("button").click()
    expect(page.locator("#why-body")).to_contain_text("The score of this decision is secret-shared")
    page.locator("#why-close").click()


def test_the_page_warns_before_dealt_words_end_and_says_why_the_helper_is_left_out(shared):
    page, facts = shared
    replace = msgspec.structs.replace
    facts["shares"] = replace(SHARES, windows=15, decisions=240, lasts_s=300.0, is_ending=True)
    expect(page.locator("#ending")).to_contain_text(
        "Dealt words run out soon: 240 decisions in 15 windows, about 5 min at the present pace."
    )
    expect(page.locator("#ending")).to_contain_text("vfb masks deal")
    away = "the helper is not connected"
    facts["links"] = {**SHARED_LINKS, "notary": {**SHARED_LINKS["notary"], "connected": False}}
    facts["shares"] = replace(
        SHARES, away=away, is_helper_away=True, windows=0, decisions=0, is_ending=True
    )
    banner = page.locator("#missing")
    expect(banner).to_contain_text(f"own features alone: {away}. 3 rewards wait.")
    expect(banner).not_to_contain_text("count as zeros")
    expect(page.locator("#ending")).to_contain_text("No dealt words are left.")
    facts.update(shares=SHARES, links=SHARED_LINKS)
    expect(banner).to_be_hidden()
    expect(page.locator("#ending")).to_be_hidden()


def test_other_protection_levels_have_no_card_of_secret_shares(opened):
    page = opened()
    expect(page.locator("#shares")).to_be_hidden()
    expect(page.locator("#ending")).to_be_hidden()
