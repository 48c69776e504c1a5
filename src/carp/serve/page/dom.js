// Elements are made one by one and words go in as text: nothing that comes from data is ever read as markup.

const SVG = "http://www.w3.org/2000/svg";

// One character for one character, so that marks keep pointing at the right places: controls that could reorder or
// hide words are shown instead of obeyed.
const REORDERING = /[\u202a-\u202e\u2066-\u206f\u0080-\u009f\ufffe\uffff]/g;
const CONTROLS = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]/g;

export function neutral(text) {
  return String(text)
    .replace(REORDERING, "\ufffd")
    .replace(CONTROLS, (sign) => (sign === "\u007f" ? "\u2421" : String.fromCharCode(0x2400 + sign.charCodeAt(0))));
}

/** An element. `on` holds listeners, `css` custom properties and lengths, everything else is an attribute. */
export function h(tag, given, ...children) {
  return build(document.createElement(tag), given, children);
}

/** The same for drawings. */
export function svg(tag, given, ...children) {
  return build(document.createElementNS(SVG, tag), given, children);
}

function build(element, given, children) {
  for (const [name, value] of Object.entries(given ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, act] of Object.entries(value)) element.addEventListener(event, act);
    else if (name === "css") for (const [rule, size] of Object.entries(value)) element.style.setProperty(rule, size);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : neutral(value));
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : neutral(child));
  }
}

/** Put these in place of whatever an element holds. */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

/** An id or a name, kept apart from the direction of the words around it. */
export const name = (text) => h("bdi", { class: "name" }, text);

/** A line of help beside what is not plain by itself. */
export const help = (...words) => h("p", { class: "help" }, words);

let numbers = 0;
export const freshId = (stem) => `${stem}-${(numbers += 1)}`;

let speaker;
/** Say a change to those who do not see it. */
export function say(words) {
  speaker ??= document.getElementById("said");
  if (speaker && words && speaker.textContent !== words) speaker.textContent = words;
}
