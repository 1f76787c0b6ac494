// The page: asks for the figures every two seconds and draws them.

import { Chart } from "./charts.js";
import { drawDecisions, drawGuardrail, drawMissing, drawMode, drawParticipants, drawShares, drawTiles, drawVersions, drawWhy } from "./panels.js";
import { byId, make, milliseconds, none, number, percent, short } from "./words.js";

const EVERY_MS = 2000;
const PATIENCE_MS = 8000;
const LONGEST_PAUSE_S = 30;
const TONES = 12;

const asked = new URLSearchParams(location.hash.slice(1));
// A link may bring the key, as vfb poc prints it: a fragment is not sent, and does not stay in sight.
if (asked.has("key")) {
  sessionStorage.setItem("key", asked.get("key"));
  asked.delete("key");
  history.replaceState(null, "", `#${asked}`);
}
const state = {
  campaign: asked.get("campaign") ?? "",
  minutes: [5, 60, 1440].includes(Number(asked.get("minutes"))) ? Number(asked.get("minutes")) : 5,
  paused: false,
  view: null,
  failures: 0,
  open: null,
  needsKey: false,
};
let timer = 0;
let question = null;

// --- charts -----------------------------------------------------------------------------------

const charts = {
  reward: new Chart({ id: "reward", title: "Reward rate", hint: "trailing mean; 95 % band, valid at every look", format: number, what: "rewards" }),
  arms: new Chart({ id: "arms", title: "Arms shown", hint: "fraction of the decisions", format: percent, stacked: true, what: "decisions" }),
  rate: new Chart({ id: "rate", title: "Decisions per second", hint: "", format: short, fromZero: true, what: "decisions" }),
  latency: new Chart({ id: "latency", title: "Latency", hint: "milliseconds", format: milliseconds, fromZero: true, what: "timed decisions" }),
  drift: new Chart({ id: "drift", title: "Model drift", hint: "reward − estimate", format: number, fromZero: true, what: "rewards of known decisions" }),
  norm: new Chart({ id: "norm", title: "Length of the model", hint: "‖θ‖", format: number, what: "measurements" }),
};
byId("charts").append(...Object.values(charts).map((chart) => chart.root));

// An arm keeps its colour as long as it is among the ones that are named.
const tones = new Map();
function toneOf(name) {
  if (name === null) return "other";
  if (!tones.has(name)) {
    const used = new Set(tones.values());
    tones.set(name, Array.from({ length: TONES }, (_, i) => i).find((i) => !used.has(i)) ?? 0);
  }
  return `arm-${tones.get(name)}`;
}

function armSeries(view) {
  const named = new Set(view.arms.map((arm) => arm.name));
  for (const name of tones.keys()) if (!named.has(name)) tones.delete(name);
  const all = view.totals.decisions;
  return view.arms
    .map((arm) => ({
      name: arm.name ?? "all others", tone: toneOf(arm.name), values: arm.share,
      weight: arm.name === null ? -1 : arm.decisions, note: percent(arm.decisions / all, 0),
    }))
    .toSorted((a, b) => (tones.get(a.name) ?? TONES) - (tones.get(b.name) ?? TONES));
}

function drawCharts(view) {
  const { times, step_s: step, rewards, drift, marks } = view;
  const draw = (chart, series, empty = none(chart.options.what, view)) => chart.draw({ times, step, series, marks, empty });
  const { policy_series: policy, baseline_series: baseline } = rewards;
  const groups = rewards.baseline_groups.join(" + ");
  const group = groups ? `baseline (${groups})` : "baseline";
  draw(charts.reward, [
    { name: group, tone: "second", dashed: true, values: baseline.mean, low: baseline.low, high: baseline.high },
    { name: "policy", tone: "first", values: policy.mean, low: policy.low, high: policy.high },
  ]);
  draw(charts.arms, armSeries(view));
  const anything = view.per_second.some((value) => value > 0);
  draw(charts.rate, [{ name: "decisions per second", tone: "first", filled: true, values: anything ? view.per_second : times.map(() => null) }]);
  draw(charts.latency, [{ name: "p99", tone: "second", values: view.p99_ms }, { name: "median", tone: "first", values: view.p50_ms }]);
  draw(charts.drift, [{ name: "root mean square", tone: "second", values: drift.rmse }, { name: "mean", tone: "first", values: drift.residual }],
    view.shares ? "Estimates are secret-shared" : undefined);
  draw(charts.norm, [{ name: "‖θ‖", tone: "first", values: drift.norm }], view.shares ? "Nobody knows it: the model is secret-shared" : undefined);
}

// --- what is on the page ----------------------------------------------------------------------

function draw() {
  const { view } = state;
  byId("main").hidden = false;
  byId("federation").textContent = view.federation || "vfbandits";
  document.title = view.federation ? `${view.federation} · vfbandits` : "vfbandits";
  drawCampaigns(view);
  drawMode(view);
  drawMissing(view);
  drawShares(view);
  drawGuardrail(view);
  drawVersions(view);
  drawTiles(view);
  drawCharts(view);
  drawParticipants(view);
  drawDecisions(view, byId("filter").value);
  const open = state.open && view.last.find((one) => one.event_id === state.open);
  if (open) drawWhy(open, view);
}

function drawCampaigns(view) {
  const select = byId("campaign");
  const names = view.campaigns.length ? view.campaigns : [""];
  if (names.join("\n") !== [...select.options].map((option) => option.value).join("\n")) {
    select.replaceChildren(...names.map((name) => make("option", "", { value: name }, name || "none yet")));
  }
  select.value = view.campaign;
}

function drawControls() {
  for (const button of document.querySelectorAll("[data-minutes]")) {
    button.setAttribute("aria-pressed", String(Number(button.dataset.minutes) === state.minutes));
  }
  const live = byId("live");
  const word = state.paused ? "Paused" : state.failures ? "Offline" : "Live";
  live.dataset.state = word.toLowerCase();
  live.setAttribute("aria-pressed", String(!state.paused));
  live.querySelector("span").textContent = word;
}

function remember() {
  const hash = new URLSearchParams({ campaign: state.campaign, minutes: state.minutes });
  history.replaceState(null, "", `#${hash}`);
}

// --- asking -----------------------------------------------------------------------------------

function plan(ms) {
  clearTimeout(timer);
  if (!document.hidden && !state.paused && !state.needsKey) timer = setTimeout(ask, ms);
}

async function ask() {
  clearTimeout(timer);
  question?.abort();
  const mine = (question = new AbortController());
  const patience = setTimeout(() => mine.abort(), PATIENCE_MS);
  const key = sessionStorage.getItem("key");
  try {
    const query = new URLSearchParams({ campaign: state.campaign, minutes: state.minutes });
    const headers = key ? { Authorization: `Bearer ${key}` } : {};
    const answer = await fetch(`v1/dashboard?${query}`, { headers, signal: mine.signal, cache: "no-store" });
    const body = answer.ok ? await answer.json() : null;
    if (mine === question) take(answer.status, body);
  } catch (error) {
    // A newer request took its place, or the server did not answer.
    if (mine === question) fail(error);
  } finally {
    clearTimeout(patience);
  }
}

function take(status, body) {
  if (body) {
    state.view = body;
    state.campaign = body.campaign;
    state.failures = 0;
    state.needsKey = false;
    byId("banner").hidden = true;
    byId("gate").hidden = true;
    drawControls();
    draw();
    plan(EVERY_MS);
  } else if (status === 401 || status === 403) {
    askForKey(status);
  } else if (status === 404 && state.campaign) {
    state.campaign = "";
    ask();
  } else {
    fail(new Error(`status ${status}`));
  }
}

function fail(error) {
  state.failures += 1;
  const pause = Math.min(LONGEST_PAUSE_S, 2 ** (state.failures - 1));
  const why = error.message?.startsWith("status") ? `The server answered with ${error.message}.` : "The server does not answer.";
  const old = state.view ? " The figures below are from before." : "";
  byId("banner-text").textContent = `${why}${old} Retrying in ${pause} ${pause === 1 ? "second" : "seconds"}.`;
  byId("banner").hidden = false;
  drawControls();
  plan(1000 * pause);
}

function askForKey(status) {
  const had = sessionStorage.getItem("key") !== null;
  state.needsKey = true;
  byId("gate-text").textContent = status === 403
    ? "This key has no permission to read the figures. Enter another one."
    : had ? "The server refuses this key." : "The figures of this server need an API key with permission to read. The key stays in this tab.";
  byId("banner").hidden = true;
  byId("missing").hidden = true;
  byId("ending").hidden = true;
  byId("tripped").hidden = true;
  byId("main").hidden = true;
  byId("gate").hidden = false;
  byId("key").focus();
}

// --- what the reader does ---------------------------------------------------------------------

function showWhy(event) {
  const row = event.target.closest("tr[data-event]");
  const one = row && state.view.last.find((decision) => decision.event_id === row.dataset.event);
  if (!one) return;
  state.open = one.event_id;
  drawWhy(one, state.view);
  byId("why").showModal();
}

const prefersDark = matchMedia("(prefers-color-scheme: dark)");
function drawTheme() {
  const chosen = localStorage.getItem("theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
  const isDark = (chosen ?? (prefersDark.matches ? "dark" : "light")) === "dark";
  byId("theme").setAttribute("aria-pressed", String(isDark));
}

byId("theme").addEventListener("click", () => {
  localStorage.setItem("theme", byId("theme").getAttribute("aria-pressed") === "true" ? "light" : "dark");
  drawTheme();
});
prefersDark.addEventListener("change", drawTheme);
byId("campaign").addEventListener("change", (event) => {
  state.campaign = event.target.value;
  tones.clear();
  remember();
  ask();
});
for (const button of document.querySelectorAll("[data-minutes]")) {
  button.addEventListener("click", () => {
    state.minutes = Number(button.dataset.minutes);
    remember();
    drawControls();
    ask();
  });
}
byId("live").addEventListener("click", () => {
  state.paused = !state.paused;
  drawControls();
  if (state.paused) clearTimeout(timer);
  else ask();
});
byId("again").addEventListener("click", ask);
byId("filter").addEventListener("input", (event) => state.view && drawDecisions(state.view, event.target.value));
byId("decisions").addEventListener("click", showWhy);
byId("why").addEventListener("close", () => (state.open = null));
byId("why-close").addEventListener("click", () => byId("why").close());
byId("why").addEventListener("click", (event) => event.target === byId("why") && byId("why").close());
byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("key", byId("key").value.trim());
  byId("key").value = "";
  state.needsKey = false;
  ask();
});
document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : plan(0)));

drawTheme();
drawControls();
ask();
