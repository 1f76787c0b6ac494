// Charts over time as SVG: lines with bands, or stacked shares.  Redrawn with each answer.

import { dayAndTime, hourMinute, make, timeOfDay } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 190;
const TOP = 10;
const BOTTOM = 24;
const RIGHT = 10;
const TICK_S = [60, 120, 300, 600, 900, 1800, 3600, 2 * 3600, 3 * 3600, 6 * 3600];

let serial = 0;

function shape(tag, attributes, text) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

// About four round numbers that cover a range.
export function roundTicks(low, high) {
  const span = high - low || Math.abs(high) || 1;
  const power = 10 ** Math.floor(Math.log10(span / 4));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => span / s <= 4.5);
  const first = Math.floor(low / step + 1e-9);
  const last = Math.ceil(high / step - 1e-9);
  const ticks = [];
  for (let i = first; i <= last; i += 1) ticks.push(i * step);
  return ticks.length > 1 ? ticks : [low, low + step];
}

// Runs of neighbours that have a value, as lists of indices.
function runs(values) {
  const found = [];
  let run = null;
  values.forEach((value, i) => {
    if (value === null) run = null;
    else if (run) run.push(i);
    else found.push((run = [i]));
  });
  return found;
}

// The range that the y axis covers.  A few wide bands at the start do not flatten all the rest.
function extent(series, fromZero) {
  const means = series.flatMap((one) => one.values.filter((value) => value !== null));
  const halves = series
    .flatMap((one) => (one.high ? one.values.map((m, i) => (one.high[i] === null ? null : one.high[i] - m)) : []))
    .filter((half) => half !== null)
    .sort((a, b) => a - b);
  const half = halves.length ? halves[Math.floor(halves.length * 0.8)] : 0;
  let low = Math.min(...means) - half;
  let high = Math.max(...means) + half;
  if (fromZero) low = Math.min(0, low);
  if (fromZero) high = Math.max(0, high);
  // Less than a fiftieth of the value is drawn as the flat line that it is.
  const least = Math.max(Math.abs(low), Math.abs(high)) / 50 || 1;
  if (high - low < least) [low, high] = [(low + high - least) / 2, (low + high + least) / 2];
  return [low, high];
}

export class Chart {
  // options: id, title, hint, what (there may be none of), format (of a value), fromZero, stacked
  constructor(options) {
    this.options = options;
    this.clip = `clip-${(serial += 1)}`;
    this.legend = make("div", "legend");
    this.plot = make("div", "plot");
    this.tip = make("div", "tip", { hidden: "" });
    const title = make("h2", "", {}, options.title);
    const hint = make("p", "", {}, options.hint);
    this.root = make("figure", "card chart", { id: `chart-${options.id}` });
    this.root.append(make("figcaption", "title", {}, title, hint), this.legend, this.plot);
    this.at = null;
    this.model = null;
    this.watch();
  }

  watch() {
    this.plot.addEventListener("pointermove", (event) => this.point(event));
    this.plot.addEventListener("pointerleave", () => this.mark(null));
    this.plot.addEventListener("focusout", () => this.mark(null));
    this.plot.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.model && this.draw(this.model)).observe(this.plot);
  }

  point(event) {
    if (!this.scale) return;
    const x = event.clientX - this.plot.getBoundingClientRect().left;
    const { times } = this.model;
    const i = Math.floor(((x - this.scale.left) / this.scale.inner) * times.length);
    this.mark(Math.max(0, Math.min(times.length - 1, i)));
  }

  key(event) {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape") this.mark(null);
    if (!move || !this.scale) return;
    event.preventDefault();
    const { length } = this.model.times;
    let i = (this.at ?? length) + move;
    while (i >= 0 && i < length && !this.readings(i).length) i += move;
    if (i >= 0 && i < length) this.mark(i);
  }

  // model: times, step, empty (a sentence), marks: [{at, kind, text}], series: [{name, tone, values, low, high, dashed, note}]
  draw(model) {
    this.model = model;
    const series = model.series.filter((one) => one.values.some((value) => value !== null));
    this.drawLegend(series);
    const width = this.plot.clientWidth;
    if (!series.length || !width) {
      this.scale = null;
      this.plot.replaceChildren(make("p", "empty", {}, model.empty));
      return;
    }
    const ticks = this.options.stacked ? [0, 0.25, 0.5, 0.75, 1] : roundTicks(...extent(series, this.options.fromZero));
    this.scale = this.scaled(width, ticks, model);
    const svg = shape("svg", { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", tabindex: 0 });
    svg.setAttribute("aria-label", this.summary(series));
    this.axes(svg, ticks);
    if (this.options.stacked) this.stack(svg, series);
    else series.forEach((one) => this.line(svg, one));
    this.flags(svg);
    this.cursor = shape("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
    svg.append(this.cursor);
    const focused = this.plot.contains(document.activeElement);
    const at = this.at;
    this.plot.replaceChildren(svg, this.tip);
    if (focused) svg.focus({ preventScroll: true });
    this.mark(at);
  }

  scaled(width, ticks, model) {
    const longest = Math.max(...ticks.map((tick) => this.tick(tick, ticks).length));
    // The same for most charts, so that their time axes line up.
    const left = Math.max(50, 12 + 6.6 * longest);
    const inner = width - left - RIGHT;
    const [low, high] = [ticks[0], ticks[ticks.length - 1]];
    const { times, step } = model;
    const [from, until] = [times[0], times[times.length - 1] + step];
    const time = (at) => left + ((at - from) / (until - from)) * inner;
    const y = (value) => HEIGHT - BOTTOM - ((value - low) / (high - low)) * (HEIGHT - TOP - BOTTOM);
    return { width, left, inner, from, until, time, y, x: (i) => time(times[i] + step / 2) };
  }

  tick(value, ticks) {
    if (this.options.stacked) return `${100 * value} %`;
    const step = ticks[1] - ticks[0];
    const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    const isHalf = Math.abs(step * 10 ** digits - Math.round(step * 10 ** digits)) > 1e-6;
    const text = Math.abs(value) >= 10000 ? `${value / 1000}k` : value.toFixed(digits + (isHalf ? 1 : 0));
    return text.replace("-", "−");
  }

  axes(svg, ticks) {
    const { left, inner, width, from, until, time, y } = this.scale;
    for (const tick of ticks) {
      const zero = tick === 0 ? " zero" : "";
      svg.append(shape("line", { class: `grid${zero}`, x1: left, x2: width - RIGHT, y1: y(tick), y2: y(tick) }));
      svg.append(shape("text", { class: "axis", x: left - 8, y: y(tick) + 4, "text-anchor": "end" }, this.tick(tick, ticks)));
    }
    const most = Math.max(2, Math.floor(inner / 76));
    const every = TICK_S.find((s) => (until - from) / s <= most) ?? 12 * 3600;
    // Round in the reader's own time zone.
    const offset = -60 * new Date(until * 1000).getTimezoneOffset();
    for (let at = Math.ceil((from + offset) / every) * every - offset; at <= until; at += every) {
      const x = time(at);
      svg.append(shape("line", { class: "notch", x1: x, x2: x, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM + 4 }));
      if (x > left + 14 && x < width - 18) {
        svg.append(shape("text", { class: "axis", x, y: HEIGHT - 6, "text-anchor": "middle" }, hourMinute(at)));
      }
    }
    const clip = shape("clipPath", { id: this.clip });
    clip.append(shape("rect", { x: left, y: TOP - 1, width: Math.max(0, inner), height: HEIGHT - TOP - BOTTOM + 2 }));
    svg.append(clip);
  }

  line(svg, one) {
    const { x, y } = this.scale;
    const group = shape("g", { class: `series ${one.tone}${one.dashed ? " dashed" : ""}`, "clip-path": `url(#${this.clip})` });
    if (one.low) {
      for (const run of runs(one.low)) {
        const up = run.map((i) => `${x(i)},${y(one.high[i])}`);
        const down = run.toReversed().map((i) => `${x(i)},${y(one.low[i])}`);
        group.append(shape("polygon", { class: "band", points: [...up, ...down].join(" ") }));
      }
    }
    for (const run of runs(one.values)) {
      const points = run.map((i) => `${x(i)},${y(one.values[i])}`);
      if (one.filled) {
        const ends = [`${x(run[run.length - 1])},${y(0)}`, `${x(run[0])},${y(0)}`];
        group.append(shape("polygon", { class: "band", points: [...points, ...ends].join(" ") }));
      }
      if (run.length > 1) group.append(shape("polyline", { points: points.join(" ") }));
      else group.append(shape("circle", { cx: x(run[0]), cy: y(one.values[run[0]]), r: 2.5 }));
    }
    svg.append(group);
  }

  stack(svg, series) {
    const { time, y } = this.scale;
    const { times, step } = this.model;
    const floor = times.map(() => 0);
    // Steps, not slopes: a share belongs to its whole stretch of time, and one alone is seen too.
    for (const one of series) {
      const group = shape("g", { class: `series area ${one.tone}` });
      for (const run of runs(one.values)) {
        const up = run.flatMap((i) => [0, step].map((s) => `${time(times[i] + s)},${y(Math.min(1, floor[i] + one.values[i]))}`));
        const down = run.toReversed().flatMap((i) => [step, 0].map((s) => `${time(times[i] + s)},${y(floor[i])}`));
        group.append(shape("polygon", { points: [...up, ...down].join(" ") }));
      }
      one.values.forEach((value, i) => (floor[i] += value ?? 0));
      svg.append(group);
    }
  }

  // What happened at one time: a line through the chart, with a handle on the time axis.
  flags(svg) {
    for (const mark of this.model.marks ?? []) {
      const x = this.scale.time(mark.at);
      const flag = shape("g", { class: `flag ${mark.kind}` });
      const low = HEIGHT - BOTTOM;
      flag.append(shape("title", {}, `${timeOfDay(mark.at)}: ${mark.text}`));
      flag.append(shape("line", { x1: x, x2: x, y1: TOP, y2: low }));
      flag.append(shape("path", { d: `M${x - 5},${low + 7} L${x},${low} L${x + 5},${low + 7} Z` }));
      svg.append(flag);
    }
  }

  drawLegend(series) {
    const ordered = this.options.stacked ? series.toSorted((a, b) => (b.weight ?? 0) - (a.weight ?? 0)) : series;
    const entries = ordered.map((one) => {
      const name = make("span", "name", { title: one.name }, one.name);
      const note = one.note ? [make("span", "n", {}, one.note)] : [];
      return make("span", "entry", {}, make("i", `swatch ${one.tone}${one.dashed ? " dashed" : ""}`), name, ...note);
    });
    this.legend.replaceChildren(...(this.model.series.length > 1 || this.options.stacked ? entries : []));
  }

  summary(series) {
    const latest = series.map((one) => {
      const known = one.values.filter((value) => value !== null);
      return `${one.name} ${this.options.format(known[known.length - 1])}`;
    });
    const marks = (this.model.marks ?? []).map((mark) => ` ${timeOfDay(mark.at)}: ${mark.text}.`);
    return `${this.options.title}, latest: ${latest.join(", ")}.${marks.join("")} Arrow keys read other times.`;
  }

  mark(i) {
    this.at = i;
    const rows = i === null || !this.scale ? [] : this.readings(i);
    this.tip.hidden = !rows.length;
    this.cursor?.setAttribute("visibility", rows.length ? "visible" : "hidden");
    if (!rows.length) return;
    const { times, step } = this.model;
    const when = step >= 900 ? dayAndTime(times[i]).replace(/:\d\d$/, "") : timeOfDay(times[i]);
    this.tip.replaceChildren(make("p", "when", {}, when), ...rows, ...this.happened(i));
    const x = this.scale.x(i);
    this.cursor.setAttribute("x1", x);
    this.cursor.setAttribute("x2", x);
    const room = this.scale.width - this.tip.offsetWidth;
    const side = x > this.scale.width / 2 ? x - this.tip.offsetWidth - 10 : x + 10;
    this.tip.style.left = `${Math.max(0, Math.min(room, side))}px`;
  }

  // A neighbouring step counts too: a mark is hard to hit with the pointer.
  happened(i) {
    const { times, step, marks = [] } = this.model;
    return marks
      .filter((mark) => Math.abs(mark.at - times[i] - step / 2) <= step)
      .map((mark) => make("p", `happened ${mark.kind}`, {}, mark.text));
  }

  readings(i) {
    return this.model.series
      .filter((one) => one.values[i] !== null && !(this.options.stacked && one.values[i] === 0))
      .map((one) => {
        const value = make("span", "n", {}, this.options.format(one.values[i]));
        const around = one.low && one.low[i] !== null ? ` ± ${this.options.format(one.high[i] - one.values[i])}` : "";
        value.append(around);
        return make("p", "", {}, make("i", `swatch ${one.tone}${one.dashed ? " dashed" : ""}`), make("span", "name", {}, one.name), value);
      });
  }
}
