// Elements made by script. Text is always set as text: names and answers of models are never markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element. Props: `class`, `onclick` and other handlers, `style` as an object, attributes. */
export function h(tag, props, ...children) {
  return filled(document.createElement(tag), props, children);
}

/** An element of an SVG drawing; props as of `h`. */
export function svg(tag, props, ...children) {
  return filled(document.createElementNS(SVG, tag), props, children);
}

function filled(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.replace(/^on/, ""), value);
    else if (name === "style") for (const [key, it] of Object.entries(value)) element.style.setProperty(key, it);
    else if (name === "value" || name === "checked") element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children) {
    if (Array.isArray(child)) append(element, child);
    else if (child !== null && child !== undefined && child !== false) {
      element.append(child instanceof Node ? child : String(child));
    }
  }
}

/** Replace all children. */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
}

/** Set the text where it differs, so that a selection or a screen reader is not disturbed. */
export function setText(element, value) {
  const text = String(value);
  if (element.textContent !== text) element.textContent = text;
}

/** Set or remove an attribute where it differs. */
export function setAttribute(element, name, value) {
  if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, String(value));
}

const known = new WeakMap();

/**
 * Make the children of `parent` those of `items`, by `key`: new ones by `make(item)`, kept ones
 * changed by `update(element, item)`, in order; focus and selection stay where they are.
 */
export function keyed(parent, items, key, make, update) {
  const before = known.get(parent) ?? new Map();
  const after = new Map();
  let at = parent.firstChild;
  for (const item of items) {
    const name = key(item);
    let element = before.get(name);
    if (element === undefined) element = make(item);
    update?.(element, item);
    after.set(name, element);
    if (element === at) at = at.nextSibling;
    else parent.insertBefore(element, at);
  }
  for (const [name, element] of before) if (after.get(name) !== element) element.remove();
  known.set(parent, after);
}

/** Bytes in words: 1.5 GiB. */
export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let rest = value;
  let unit = 0;
  while (rest >= 1024 && unit < units.length - 1) {
    rest /= 1024;
    unit += 1;
  }
  return `${rest >= 100 || Number.isInteger(rest) ? Math.round(rest) : rest.toFixed(1)} ${units[unit]}`;
}

/** Bytes of bytes, in one unit: 68/192 GiB. */
export function share(part, whole) {
  const text = bytes(whole);
  const unit = text.split(" ")[1];
  const divisor = 1024 ** ["B", "KiB", "MiB", "GiB", "TiB"].indexOf(unit);
  const value = part / divisor;
  return `${value >= 100 || Number.isInteger(value) ? Math.round(value) : value.toFixed(1)}/${text}`;
}

/** A duration in words: 4 s, 12 min, 3 h, 2 d. */
export function duration(seconds) {
  const rest = Math.max(0, seconds);
  if (rest < 100) return `${Math.round(rest)} s`;
  if (rest < 6000) return `${Math.round(rest / 60)} min`;
  if (rest < 48 * 3600) return `${Math.round(rest / 3600)} h`;
  return `${Math.round(rest / 86400)} d`;
}

/** The age of an instant in seconds since the epoch, in words. */
export function age(at) {
  return at ? duration(Date.now() / 1000 - at) : "–";
}

/** A number without noise: 1.25, 12, 1,204. */
export function number(value) {
  if (value === null || value === undefined) return "–";
  return value.toLocaleString("en", { maximumFractionDigits: 2 });
}
