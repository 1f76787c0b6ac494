// Numbers and times as text, and small ways to make elements.

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const seconds = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const dated = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });

export const NOTHING = "–";

const minus = (text) => text.replace("-", "−");
const isNumber = (value) => value !== null && value !== undefined;

export function number(value) {
  if (!isNumber(value)) return NOTHING;
  const size = Math.abs(value);
  if (size >= 1e7) return minus(value.toExponential(2));
  if (size >= 1000) return minus(grouped.format(value));
  if (size > 0 && size < 0.0005) return minus(value.toExponential(1));
  return minus(value.toFixed(size >= 100 ? 1 : size >= 10 ? 2 : 3));
}

export function short(value) {
  if (!isNumber(value)) return NOTHING;
  const size = Math.abs(value);
  if (size === 0) return "0";
  return size >= 100 ? minus(grouped.format(value)) : minus(value.toFixed(size >= 10 ? 1 : 2));
}

export const count = (value) => (isNumber(value) ? grouped.format(value) : NOTHING);
export const signed = (value) => (value > 0 ? `+${number(value)}` : number(value));

export function percent(value, digits = 1) {
  if (!isNumber(value)) return NOTHING;
  const whole = 100 * value;
  return `${minus(whole.toFixed(whole === 0 || whole === 100 ? 0 : digits))} %`;
}

export function milliseconds(value) {
  if (!isNumber(value)) return NOTHING;
  if (value >= 10000) return `${(value / 1000).toFixed(1)} s`;
  return `${value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2)} ms`;
}

export function bytes(value) {
  if (!isNumber(value)) return NOTHING;
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit === 0 || value >= 100 ? value.toFixed(0) : value.toFixed(1)} ${units[unit]}`;
}

export const hourMinute = (at) => clock.format(at * 1000);
export const timeOfDay = (at) => seconds.format(at * 1000);
export const dayAndTime = (at) => dated.format(at * 1000);

export function span(minutes) {
  return minutes % 60 ? `${minutes} min` : `${minutes / 60} h`;
}

// A forecast, in the unit that reads best.
export function lasting(seconds) {
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
    if (seconds >= 2 * size) return `${grouped.format(Math.floor(seconds / size))} ${unit}`;
  }
  return `${grouped.format(seconds)} s`;
}

// The text for none of them: ever, or in the time range of the view.
export const none = (what, view) => `No ${what} ${view.last.length ? `in the last ${span(view.minutes)}` : "yet"}`;

export const byId = (id) => document.getElementById(id);

// An element with classes, attributes and children; text is never read as HTML.
export function make(tag, classes = "", attributes = {}, ...children) {
  const element = document.createElement(tag);
  if (classes) element.className = classes;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// Gives a parent these children and moves none that is already in its place, so focus stays.
export function settle(parent, children) {
  let place = parent.firstChild;
  for (const child of children) {
    if (child === place) place = place.nextSibling;
    else parent.insertBefore(child, place);
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}
