// Tiles, the two tables, and the answer to "why this arm".

import {
  NOTHING, byId, bytes, count, dayAndTime, lasting, make, milliseconds, none, number, percent, settle, short, signed, span, timeOfDay,
} from "./words.js";

function tile(id, figure, unit, ...notes) {
  const card = byId(`tile-${id}`);
  const value = make("span", "", {}, figure);
  const units = unit ? [make("small", "", {}, unit)] : [];
  card.querySelector(".figure").replaceChildren(value, ...units);
  card.querySelector(".note").replaceChildren(...notes);
}

export function drawTiles(view) {
  const { totals, minutes } = view;
  const settled = ["learnt", "default", "summed", "logged"].reduce((sum, key) => sum + (totals.statuses[key] ?? 0), 0);
  tile("rate", short(totals.per_second), "/s", `${count(totals.decisions)} in ${span(minutes)}`);
  const [p99, unit = ""] = milliseconds(totals.p99_ms).split(" ");
  tile("latency", p99, unit, `median ${milliseconds(totals.p50_ms)}`);
  tile("waiting", count(totals.waiting), "", `${count(settled)} settled in ${span(minutes)}`);
  tile("degraded", percent(totals.degraded), "", totals.degraded === null ? "no decisions" : totals.degraded ? "a participant missing" : "no participant missing");
  byId("tile-degraded").classList.toggle("warn", totals.degraded > 0.05);
  const inShadow = totals.shadow_agreement !== null;
  const agreement = inShadow ? totals.shadow_agreement : totals.agreement;
  tile("agreement", percent(agreement), "", inShadow ? "in shadow mode" : "with the baseline");
  drawReward(view);
}

function drawReward(view) {
  const { policy, baseline, baseline_groups: groups, lift } = view.rewards;
  const group = groups.join(" + ");
  const shown = policy.n ? policy : baseline;
  const half = shown.high === null ? "" : `± ${number(shown.high - shown.mean)}`;
  if (!policy.n) {
    const text = group ? `of the baseline (${group}); the policy has no rewards` : none("rewards", view);
    tile("reward", number(shown.mean), half, text);
    return;
  }
  const notes = [group ? `baseline ${number(baseline.mean)} (${group})` : "no baseline to compare with"];
  if (lift) notes.push(make("span", `lift ${verdict(lift)}`, { title: "Difference from the baseline with its 95 % interval, which is valid at every look" }, `lift ${liftText(lift)}`));
  tile("reward", number(policy.mean), half, ...notes);
}

function verdict(lift) {
  if (lift.low > 0) return "good";
  return lift.high < 0 ? "bad" : "";
}

function liftText(lift) {
  if (lift.relative === null) return `${signed(lift.difference)} ± ${number((lift.high - lift.low) / 2)}`;
  const sign = lift.relative > 0 ? "+" : "";
  return `${sign}${percent(lift.relative)} ± ${percent((lift.relative_high - lift.relative_low) / 2)}`;
}

function bar(value, text, tone = "") {
  const fill = make("i", tone);
  fill.style.width = `${Math.max(0, Math.min(100, 100 * value))}%`;
  return make("div", "meter", {}, make("span", "track", { "aria-hidden": "true" }, fill), make("span", "n", {}, text));
}

const MODES = {
  learn: ["Learning", "The policy decides and learns from every reward."],
  shadow: ["Shadow", "Every event gets the baseline; the policy only learns."],
  tripped: ["On baseline", "Every event gets the baseline: the guardrail has switched to it. The policy still learns."],
  frozen: ["Frozen", "The policy decides; rewards are logged and nothing is learnt."],
};

export function drawMode({ facts, guardrail }) {
  const badge = byId("mode");
  badge.hidden = !facts;
  if (!facts) return;
  const mode = guardrail?.tripped && facts.mode !== "shadow" ? "tripped" : facts.mode;
  const [word, says] = MODES[mode] ?? [mode, ""];
  badge.textContent = word;
  badge.title = says;
  badge.dataset.mode = mode;
}

// Missing participants, and since when: their features count as zeros meanwhile.
export function drawMissing({ participants, now, shares }) {
  const lines = participants
    .filter((one) => one.connected === false || (one.circuit && one.circuit !== "closed"))
    .filter((one) => !shares?.is_helper_away || one.name !== shares.helper)
    .map((one) => {
      const since = one.since === null ? "" : ` since ${now - one.since < 43200 ? timeOfDay(one.since) : dayAndTime(one.since)}`;
      const what = one.connected === false ? `is not connected${since}` : `does not answer in time${since}`;
      return make("p", "", {}, make("strong", "", {}, one.name), ` ${what}. Its features count as zeros.`);
    });
  if (shares?.away) {
    const waiting = shares.queued ? ` ${count(shares.queued)} rewards wait.` : "";
    lines.unshift(make("p", "", {}, make("strong", "", {}, "Decisions use the active participant's own features alone:"), ` ${shares.away}.${waiting}`));
  }
  const banner = byId("missing");
  banner.hidden = !lines.length;
  const text = lines.map((line) => line.textContent).join("\n");
  if (text !== banner.textContent) banner.replaceChildren(...lines);
}

// What is released on secret shares, the helper, and how long the dealt words last.
export function drawShares({ shares, participants }) {
  const card = byId("shares");
  const banner = byId("ending");
  card.hidden = !shares;
  banner.hidden = !shares?.is_ending;
  if (!shares) return;
  const { released, alone, windows, decisions } = shares;
  const lasts = shares.lasts_s === null ? "" : `about ${lasting(shares.lasts_s)} at the present pace`;
  const left = `${count(decisions)} decisions in ${count(windows)} windows`;
  const ends = windows ? `Dealt words run out soon: ${left}${lasts ? `, ${lasts}` : ""}.` : "No dealt words are left.";
  if (shares.is_ending) banner.textContent = `${ends} Deal more at the mask generator: vfb masks deal.`;
  const link = participants.find((one) => one.name === shares.helper);
  const all = released + alone;
  const entries = [
    ["Released", shares.learns, "to the active participant", ""],
    ["Helper", shares.helper, `${shares.has_features ? "with features" : "without features"}, ${link?.connected ? "connected" : "not connected"}`, shares.is_helper_away ? "bad" : ""],
    ["Decisions", `${count(released)} by both servers`, `${count(alone)} on own features alone (${percent(all ? alone / all : 0)})`, alone > 0.05 * all ? "warn" : ""],
    ["Queued rewards", count(shares.queued), "wait for both servers", ""],
    ["Dealt words", `${count(decisions)} decisions`, `${count(windows)} windows${lasts ? `, ${lasts}` : ""}`, shares.is_ending ? "warn" : ""],
  ];
  byId("shares-note").textContent = "experimental; counts since the start";
  byId("shares-facts").replaceChildren(...entries.map(([term, text, note, tone]) =>
    make("div", tone, {}, make("dt", "", {}, term), make("dd", "", {}, text, make("small", "", {}, note)))));
}

const GUARDRAIL = {
  off: "The guardrail is off: a losing policy is not switched to the baseline.",
  watching: "The guardrail is armed: a policy whose interval lies below zero is switched to the baseline.",
  tripped: "The guardrail has tripped: every event gets the baseline until an operator re-arms it.",
};

// The comparison since the guardrail was armed, and a banner once it has tripped.
export function drawGuardrail({ guardrail, now }) {
  const { tripped } = guardrail ?? {};
  const banner = byId("tripped");
  banner.hidden = !tripped;
  if (tripped) {
    const when = now - tripped.at < 43200 ? timeOfDay(tripped.at) : dayAndTime(tripped.at);
    const words = `since ${when}: the policy brought ${number(tripped.mean_policy)} per event, the holdback ${number(tripped.mean_holdback)}. `
      + `Difference ${signed(tripped.difference)} (${percent(1 - tripped.alpha, 1)} interval ${signed(tripped.low)} to ${signed(tripped.high)}) over ${count(tripped.n_policy + tripped.n_holdback)} events.`;
    const line = make("p", "", {}, make("strong", "", {}, "The guardrail shows the baseline"), ` ${words} An operator re-arms it.`);
    if (line.textContent !== banner.textContent) banner.replaceChildren(line);
  }
  const card = byId("guardrail");
  card.hidden = !guardrail || (guardrail.since === null && guardrail.state === "off");
  if (card.hidden) return;
  const { low, high, difference, n_policy: policy, n_holdback: holdback, n_waiting: waiting } = guardrail;
  const since = guardrail.since === null ? "" : `since ${dayAndTime(guardrail.since)}`;
  byId("guardrail-note").textContent = since;
  const figure = byId("guardrail-figure");
  figure.className = `verdict ${low === null ? "" : verdict(guardrail)}`;
  const events = `${count(policy)} events of the policy, ${count(holdback)} of the holdback`;
  figure.textContent = low === null
    ? `Too few settled events yet: ${events}; ${count(guardrail.min_events)} of each are needed.`
    : `${signed(difference)} per event (${signed(low)} to ${signed(high)})`;
  byId("guardrail-line").hidden = low === null;
  if (low !== null) drawInterval(byId("guardrail-line"), guardrail);
  const level = percent(1 - guardrail.alpha, guardrail.alpha < 0.01 ? 1 : 0);
  const look = low === null ? "" : ` ${level} interval over ${events}. It is valid at all times together, so you may look as often as you like.`;
  const rest = waiting ? ` ${count(waiting)} more wait for a reward, their own or that of an earlier event.` : "";
  byId("guardrail-words").textContent = `${GUARDRAIL[guardrail.state]}${look}${rest}`;
}

function drawInterval(line, { low, high, difference }) {
  const [zero, span_, point] = line.children;
  const ends = [low, high, 0];
  const [from, to] = [Math.min(...ends), Math.max(...ends)];
  const room = 0.06 * (to - from || 1);
  const place = (value) => (100 * (value - from + room)) / (to - from + 2 * room || 1);
  zero.style.left = `${place(0)}%`;
  span_.style.left = `${place(low)}%`;
  span_.style.width = `${place(high) - place(low)}%`;
  point.style.left = `${place(difference)}%`;
  line.dataset.verdict = verdict({ low, high });
}

// What is far enough from the baseline to be looked at; the alert rules have the same bounds.
function driftOf(one) {
  const found = [];
  if (one.missing_ratio > 0.2) found.push(`${percent(one.missing_ratio, 0)} missing`);
  if (one.norm_ratio !== null && (one.norm_ratio > 1.5 || one.norm_ratio < 0.67)) found.push(`length² ×${short(one.norm_ratio)}`);
  if (one.mean_shift > 0.5) found.push(`mean off by ${short(one.mean_shift)} sd`);
  if (one.variance_shift > 1) found.push(`variance ×2^±${short(one.variance_shift)}`);
  const known = [one.missing_ratio, one.norm_ratio, one.mean_shift].some((value) => value !== null);
  const facts = [
    ["missing", percent(one.missing_ratio)], ["mean squared length", one.norm_ratio === null ? NOTHING : `×${short(one.norm_ratio)} of the baseline`],
    ["largest shift of a mean", one.mean_shift === null ? NOTHING : `${short(one.mean_shift)} sd`],
  ].filter(([, text]) => text !== NOTHING).map(([name, text]) => `${name}: ${text}`).join("; ");
  const tags = found.map((text) => make("span", "tag warn", {}, text));
  const words = tags.length ? tags : [make("span", "muted", {}, known ? "steady" : NOTHING)];
  return make("div", "tags", { title: facts || "too few rows yet" }, ...words);
}

const PROCESSES = { active: "active participant", trainer: "trainer (leader)", ranker: "ranker" };

export function drawVersions({ facts }) {
  const list = byId("versions");
  list.hidden = !facts;
  if (!facts) return;
  const lag = facts.journal_lag_s < 1 ? "no lag" : `${short(facts.journal_lag_s)} s behind`;
  const entries = [
    ["Process", PROCESSES[facts.process] ?? facts.process], ["Roster", `number ${facts.roster}`], ["Masks", `epoch ${facts.mask_epoch}`],
    ["Protection", facts.protection], ["Model", `after ${count(facts.model_version)} rewards`], ["Settings", `version ${facts.settings_version}`],
    ["Journal", `${count(facts.journal_position)} records, ${lag}`],
  ];
  list.replaceChildren(...entries.map(([term, text]) => make("div", "", {}, make("dt", "", {}, term), make("dd", "", {}, text))));
  list.classList.toggle("late", facts.journal_lag_s >= 5);
}

function linkState({ connected, circuit }) {
  if (connected === null) return ["", ""];
  if (!connected) return ["away", "not connected"];
  return circuit && circuit !== "closed" ? ["shaky", `circuit ${circuit}`] : ["here", "connected"];
}

export function drawParticipants(view) {
  const rows = view.participants.map((one) => {
    const [state, says] = linkState(one);
    const name = make("th", "who", { scope: "row" }, make("i", `dot ${state}`), make("span", "name", { title: one.name }, one.name));
    if (says) name.append(make("small", "", {}, says));
    const hidden = view.shares ? "secret-shared" : "hidden by the mask";
    const share = one.share === null || view.shares ? make("span", "muted", {}, one.width === 0 ? "helper" : hidden) : bar(one.share, percent(one.share));
    const part_of = view.totals.decisions ? share : NOTHING;
    const here = one.availability === null ? NOTHING : bar(one.availability, percent(one.availability), one.availability < 0.95 ? "low" : "");
    const answers = one.asks === null || one.width === 0 ? NOTHING : `${count(one.answers)} / ${count(one.asks)}`;
    const cells = [
      ["Part of prediction", part_of, "wide"], ["Availability", here, "wide"], ["Latency", milliseconds(one.latency_ms), "n"],
      ["Answers", answers, "n"], ["Received", one.width === 0 ? NOTHING : bytes(one.bytes), "n"], ["Features", one.width === 0 ? "none" : count(one.width), "n"],
      ["Drift", driftOf(one), "drift"],
    ];
    return make("tr", "", {}, name, ...cells.map(([label, value, kind]) => make("td", kind, { "data-label": label }, value)));
  });
  byId("participants").replaceChildren(...rows);
  byId("participants-empty").hidden = rows.length > 0;
  byId("participants").closest("table").hidden = rows.length === 0;
  byId("participants-note").textContent = rows.length ? `last ${span(view.minutes)}; counts of links since the start` : "";
}

const kept = new Map();

function decisionRow(one) {
  const mark = `${one.reward} ${one.status}`;
  const known = kept.get(one.event_id);
  if (known && known.mark === mark && known.at === one.at) return known.row;
  const arm = make("div", "", {}, make("span", "name", { title: one.arm }, one.arm));
  if (one.group !== "policy") arm.append(make("small", "tag", {}, one.group));
  if (one.missing.length) arm.append(make("small", "tag warn", { title: `missing: ${one.missing.join(", ")}` }, "degraded"));
  const open = make("button", "link name", { type: "button", title: one.event_id, "aria-label": `Why ${one.arm}, event ${one.event_id}` }, one.event_id);
  const reward = one.reward === null ? make("span", "muted", {}, one.status ?? "waiting") : number(one.reward);
  const row = known?.row ?? make("tr");
  row.dataset.event = one.event_id;
  const cells = [
    make("td", "time", { title: dayAndTime(one.at) }, timeOfDay(one.at)), make("td", "arm", {}, arm),
    make("td", "user", { title: one.user }, make("span", "name", {}, one.user)),
    make("td", "n estimate", {}, number(one.estimate)), make("td", "n bonus", {}, number(one.bonus)),
    make("td", "n probability", {}, percent(one.probability)), make("td", "n reward", {}, reward),
    make("td", "n latency", {}, milliseconds(one.latency_ms)), make("td", "event", {}, open),
  ];
  const focused = row.contains(document.activeElement);
  row.replaceChildren(...cells);
  if (focused) open.focus({ preventScroll: true });
  kept.set(one.event_id, { mark, at: one.at, row });
  return row;
}

export function drawDecisions(view, filter) {
  const wanted = filter.trim().toLowerCase();
  const shown = view.last.filter((one) => !wanted || [one.user, one.arm, one.event_id].some((text) => text.toLowerCase().includes(wanted)));
  settle(byId("decisions"), shown.map(decisionRow));
  const there = new Set(view.last.map((one) => one.event_id));
  for (const id of kept.keys()) if (!there.has(id)) kept.delete(id);
  const empty = byId("decisions-empty");
  empty.hidden = shown.length > 0;
  empty.textContent = view.last.length
    ? `None of the last ${view.last.length} matches “${filter.trim()}”.`
    : view.lists_decisions
      ? "No decisions yet. They appear here as soon as the application asks for one."
      : "This key shows figures only. Decisions need a key of scope read.";
  byId("decisions").closest("table").hidden = shown.length === 0;
  byId("decisions-count").textContent = !view.last.length ? "" : wanted ? `${shown.length} of ${view.last.length}` : `${view.last.length}`;
}

// Steps of a waterfall: each starts where the one before ended, sums start at zero.
function waterfall(one) {
  const steps = [];
  let at = 0;
  const parts = Object.entries(one.parts ?? {});
  parts.forEach(([name, value]) => {
    steps.push({ name, from: at, value, kind: "part" });
    at += value;
  });
  steps.push({ name: "Estimate", from: 0, value: one.estimate, kind: parts.length ? "sum" : "part" });
  steps.push({ name: "Bonus", from: one.estimate, value: one.bonus, kind: "bonus" });
  steps.push({ name: "Score", from: 0, value: one.estimate + one.bonus, kind: "sum" });
  return steps;
}

function drawWaterfall(one) {
  const steps = waterfall(one);
  const ends = steps.flatMap(({ from, value }) => [from, from + value]).concat(0);
  const [low, high] = [Math.min(...ends), Math.max(...ends)];
  const place = (value) => (100 * (value - low)) / (high - low || 1);
  return make("div", "waterfall", { role: "list", "aria-label": "Score, step by step" }, ...steps.map((step) => {
    const fill = make("i", `${step.kind}${step.value < 0 ? " minus" : ""}`);
    const zero = make("i", "zero");
    zero.style.left = `${place(0)}%`;
    fill.style.left = `${place(Math.min(step.from, step.from + step.value))}%`;
    fill.style.width = `${Math.abs(place(step.from + step.value) - place(step.from))}%`;
    const text = step.kind === "sum" ? number(step.value) : signed(step.value);
    return make("div", `step ${step.kind}`, { role: "listitem" },
      make("span", "name", { title: step.name }, step.name), make("span", "track", { "aria-hidden": "true" }, zero, fill), make("span", "n", {}, text));
  }));
}

const GROUPS = {
  policy: "the policy's choice",
  holdback: "held back: the baseline is shown",
  shadow: "shadow mode: the baseline is shown",
  guardrail: "switched by the guardrail: the baseline is shown",
};

export function drawWhy(one, { shares }) {
  const arm = make("p", "chosen", {}, make("strong", "", {}, one.arm), make("span", "muted", {}, GROUPS[one.group] ?? one.group));
  const knows = one.estimate !== null && one.bonus !== null;
  const chart = knows ? drawWaterfall(one) : make("p", "muted", {}, shares ? "The score of this decision is secret-shared." : "The journal does not hold the score of this decision.");
  const parts = [arm, chart];
  if (knows && !one.parts) parts.push(make("p", "muted hint", {}, "Which participant the estimate comes from is hidden by the mask."));
  const reward = one.reward === null ? (one.status ?? "waiting") : `${number(one.reward)} (${one.status}, after ${short(one.waited_s)} s)`;
  const off = one.reward === null || !knows ? [] : [["Reward − estimate", signed(one.reward - one.estimate)]];
  const facts = [
    ["Reward", reward], ...off, ["Policy's choice", one.choice], ["Baseline", one.baseline || NOTHING],
    ["Probability", percent(one.probability)], ["Arms", count(one.n_arms)],
    ["Contributors", one.contributors.join(", ") || NOTHING], ...(one.missing.length ? [["Missing", one.missing.join(", ")]] : []),
    ["User", one.user], ["Event", one.event_id], ["Time", dayAndTime(one.at)],
    ["Model", `after ${count(one.model_version)} rewards`], ["Latency", milliseconds(one.latency_ms)], ["Received", bytes(one.received_bytes)],
  ];
  const list = make("dl", "facts");
  for (const [term, text] of facts) list.append(make("dt", "", {}, term), make("dd", "", {}, text));
  byId("why-body").replaceChildren(...parts, list);
}
