// Search as you type: a combobox with a list of options, by the ARIA pattern, for mouse, finger and keyboard alike.

import { get } from "./api.js";
import { fill, freshId, h, name, neutral } from "./dom.js";
import { thumbnail } from "./pictures.js";
import { called, thingName } from "./titles.js";
import { counted, number } from "./words.js";

const PAUSE = 160;
const SHOWN = 20;
const CHIPS = 6;
const KINDS = {
  user: { path: "users", label: "Person", many: "people", nobody: "Nobody matches" },
  item: { path: "items", label: "Thing", many: "things", nobody: "Nothing matches" },
  category: { path: "categories", label: "Category", many: "categories", nobody: "No category matches" },
};
const EVERYTHING = { id: "", title: "Everything" };

/** A field to choose a person or a thing. `choose` is told the id; `show` puts an id into the field. */
export function picker(kind, { label = KINDS[kind].label, value = "", hint = "", choose }) {
  const about = KINDS[kind];
  const list = h("ul", { role: "listbox", id: freshId("options"), "aria-label": about.many });
  const status = h("p", { class: "picker-status soft", role: "status" });
  const input = h("input", {
    type: "text",
    role: "combobox",
    id: freshId("picker"),
    class: "picker-input",
    "aria-label": label,
    "aria-autocomplete": "list",
    "aria-expanded": "false",
    "aria-controls": list.id,
    autocomplete: "off",
    autocapitalize: "none",
    spellcheck: "false",
    placeholder: hint || `choose a ${label.toLowerCase()}`,
  });
  const narrow = kind === "item" ? h("div", { class: "chips narrow", hidden: true }) : null;
  const popup = h("div", { class: "popup", hidden: true }, narrow, list, status);
  const chevron = h("span", { class: "chevron", "aria-hidden": "true" });
  const tag = h("small", { class: "soft thing-id picker-id" });
  const node = h("span", { class: "picker" }, input, chevron, tag, popup);
  const field = { kind, tag, input, list, status, popup, about, narrow, category: null, choose, node, chosen: value, options: [], active: -1 };
  listen(field);
  write(field);
  return {
    node,
    input,
    show(id = "") {
      field.chosen = id;
      write(field);
      close(field);
    },
    /** A title that was not known before takes the place of its id, unless somebody is writing. */
    rename() {
      if (document.activeElement !== input) write(field);
    },
  };
}

const written = ({ kind, chosen }) => (kind === "item" ? called(chosen) : chosen);

/** The choice by its title, with the id below it where that is something else. */
function write(field) {
  const { input, tag, chosen } = field;
  if (input.value !== written(field)) input.value = written(field);
  tag.textContent = written(field) === chosen ? "" : neutral(chosen);
}

function listen(field) {
  const { input, popup, list, node } = field;
  input.addEventListener("input", () => search(field, input.value));
  input.addEventListener("keydown", (event) => press(field, event));
  input.addEventListener("focus", () => input.select());
  input.addEventListener("click", () => popup.hidden && search(field, "", 0));
  if (field.narrow) input.addEventListener("focus", () => offerCategories(field), { once: true });
  node.addEventListener("focusout", (event) => {
    if (node.contains(event.relatedTarget)) return;
    write(field);
    close(field);
  });
  // The field keeps the focus while an option is pressed.
  popup.addEventListener("pointerdown", (event) => event.preventDefault());
  list.addEventListener("click", (event) => {
    const option = event.target.closest("[role=option]");
    if (option) take(field, field.options[[...list.children].indexOf(option)]);
  });
}

function press(field, event) {
  const { options, popup } = field;
  const open = !popup.hidden;
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    if (!open) search(field, "", 0);
    else if (options.length) {
      const step = event.key === "ArrowDown" ? 1 : -1;
      const from = field.active < 0 && step < 0 ? 0 : field.active;
      activate(field, (from + step + options.length) % options.length);
    }
  } else if (event.key === "Enter") {
    event.preventDefault();
    enter(field);
  } else if (event.key === "Escape" && (open || field.input.value !== written(field))) {
    event.preventDefault();
    write(field);
    close(field);
  }
}

// Enter before the answer came waits for it: what was typed is what counts.
async function enter(field) {
  if (field.popup.hidden) return;
  if (field.pending) await field.pending;
  const typed = field.input.value.trim().toLowerCase();
  const named = (words) => field.options.find((option) => option[words]?.toLowerCase() === typed);
  const exact = named("id") ?? named("title");
  take(field, field.options[field.active] ?? exact ?? field.options[0]);
}

function take(field, option) {
  if (!option) return;
  field.chosen = option.id;
  write(field);
  close(field);
  field.choose(option.id);
}

function close(field) {
  clearTimeout(field.timer);
  field.asking?.abort();
  field.pending = null;
  field.popup.hidden = true;
  field.input.setAttribute("aria-expanded", "false");
  activate(field, -1);
}

function activate(field, place) {
  field.active = place;
  [...field.list.children].forEach((option, at) => option.setAttribute("aria-selected", String(at === place)));
  const option = field.list.children[place];
  if (!option) {
    field.input.removeAttribute("aria-activedescendant");
    return;
  }
  field.input.setAttribute("aria-activedescendant", option.id);
  option.scrollIntoView({ block: "nearest" });
}

function show({ popup, input }) {
  popup.hidden = false;
  input.setAttribute("aria-expanded", "true");
  popup.classList.remove("from-right");
  popup.classList.toggle("from-right", popup.getBoundingClientRect().right > document.documentElement.clientWidth);
}

function search(field, words, pause = PAUSE) {
  clearTimeout(field.timer);
  field.asking?.abort();
  field.asking = new AbortController();
  const { signal } = field.asking;
  show(field);
  field.status.textContent = "Searching…";
  field.pending = new Promise((done) => {
    field.timer = setTimeout(() => find(field, words.trim(), signal).finally(done), pause);
  });
}

async function find(field, words, signal) {
  try {
    const answer = await get(field.about.path, { q: words || null, limit: SHOWN, category: field.category }, { signal });
    if (!signal.aborted) offer(field, found(field, answer, words), answer, words);
  } catch (problem) {
    if (signal.aborted) return;
    offer(field, [], { total: 0 }, words);
    field.status.textContent = [problem.title, problem.fix].filter(Boolean).join(". ");
  }
}

/** What was found, as options; of categories, everything comes first. */
function found({ kind, about }, answer, words) {
  if (kind !== "category") return answer[about.path];
  const options = answer.categories.map(({ name: id, things }) => ({ id, things }));
  return words ? options : [EVERYTHING, ...options];
}

/** The largest categories as buttons above the list of things, where things have any. */
async function offerCategories(field) {
  const { categories } = await get("categories", { limit: CHIPS }).catch(() => ({ categories: [] }));
  if (!categories.length) return;
  const buttons = categories.map(({ name: category }) => {
    const button = h("button", { type: "button", class: "chip", "aria-pressed": "false" }, category);
    button.addEventListener("click", () => {
      field.category = field.category === category ? null : category;
      for (const one of buttons) one.setAttribute("aria-pressed", String(one === button && field.category !== null));
      search(field, field.input.value === written(field) ? "" : field.input.value, 0);
    });
    return button;
  });
  fill(field.narrow, h("span", { class: "soft small" }, "Only "), buttons);
  field.narrow.hidden = false;
}

function offer(field, options, { total, complete = true }, words) {
  field.options = options;
  fill(
    field.list,
    options.map((option) => optionRow(option, words)),
  );
  activate(field, -1);
  const { nobody, many } = field.about;
  if (!options.length) field.status.textContent = words ? `${nobody} “${words}”.` : `There are no ${many}.`;
  else if (total > options.length)
    field.status.textContent = `${options.length} of ${complete ? total : "very many"} ${many}; type to narrow down`;
  else field.status.textContent = total === 1 ? "one match" : `${total} ${many}`;
}

function optionRow({ id, title, reviews, mean, snippet, things, facts: more }) {
  const facts = [
    typeof reviews === "number" && counted(reviews, "review"),
    typeof things === "number" && counted(things, "thing"),
    typeof mean === "number" && `average ${number(mean, 1)}`,
  ].filter(Boolean);
  return h(
    "li",
    { role: "option", id: freshId("option"), "aria-selected": "false" },
    more && thumbnail(more, title ?? id, "tiny"),
    h("span", { class: "option-name" }, title && id ? thingName(id) : name(title ?? id)),
    h("span", { class: "soft option-facts" }, facts.join(" · ")),
    snippet && h("span", { class: "soft option-snippet", dir: "auto" }, snippet),
  );
}
