// The page: reads the link, asks the service, shows the view.

import { get } from "./api.js";
import { fill, h, say } from "./dom.js";
import { problemCard } from "./problem.js";
import { linkTo, readLink } from "./state.js";
import { count } from "./words.js";
import { compare } from "./views/compare.js";
import { offers } from "./views/offers.js";
import { overview } from "./views/overview.js";
import { person } from "./views/person.js";
import { results } from "./views/results.js";
import { start } from "./views/start.js";
import { thing } from "./views/thing.js";
import { whatif } from "./views/whatif.js";
import { why } from "./views/why.js";

const VIEWS = { start, why, offers, person, thing, compare, whatif, overview, results };
const THEMES = ["auto", "light", "dark"];
const place = (id) => document.getElementById(id);

let about;
let shown = { view: null, question: null, result: null };
let running = new AbortController();

// ---- links

/** Go where the state has changed to; a new entry for the back button. */
function go(change) {
  const state = readLink(location.hash);
  location.hash = linkTo(state.view || "start", { ...state, ...change });
}

/** Keep a small change of state in the link without a new entry. */
function remember(state) {
  history.replaceState(null, "", linkTo(shown.view, state));
  drawLinks(state);
}

function missingWords(needs, state) {
  const missing = Object.entries(needs).filter(([field]) => !state[field]);
  const [one, two, three] = missing.map(([, words]) => `a ${words}`);
  if (!one) return "";
  return `Choose ${three ? `${one}, ${two} and ${three}` : two ? `${one} and ${two}` : one} to begin.`;
}

// ---- drawing

function drawLinks(state) {
  const names = Object.keys(VIEWS).filter((view) => view !== "results" || about?.results);
  const carried = { user: state.user, item: state.item };
  fill(
    place("views"),
    names.map((view) => {
      const kept = view === "compare" ? { ...carried, other: state.other } : carried;
      const current = view === state.view ? "page" : null;
      return h("li", null, h("a", { href: linkTo(view, kept), "aria-current": current }, VIEWS[view].label));
    }),
  );
  place("menu").textContent = VIEWS[state.view]?.label ?? "Menu";
}

function drawAbout() {
  const facts = [
    about.corpus,
    `${count(about.users)} people`,
    `${count(about.items)} things`,
    `${count(about.reviews)} reviews`,
    `model ${about.model}`,
    `carp ${about.version}`,
  ].filter(Boolean);
  fill(
    place("about"),
    facts.map((fact) => h("span", null, fact)),
  );
}

function drawTitle(view, state) {
  document.title = `${view.title(state)} · carp`;
  place("title").textContent = view.title(state);
}

function drawQuestion(view, state) {
  if (shown.view === state.view) {
    shown.question.update(state);
    return;
  }
  shown.question = view.question(state, go, about);
  fill(place("question"), shown.question.node);
}

const loading = () =>
  h("div", { class: "loading" }, h("p", null, "Reading the reviews…"), h("span"), h("span"), h("span"));

// ---- from link to view

function settled(state) {
  if (!state.view) return { ...state, view: "start" };
  return state;
}

/** Without a choice yet, the first look is at an example that is there. */
function withExample(state) {
  if (state.view === "why" && !state.user && !state.item && about.example) return { ...state, ...about.example };
  return state;
}

async function open(how) {
  place("view").setAttribute("aria-busy", "true");
  running.abort();
  running = new AbortController();
  const { signal } = running;
  await follow(how, signal);
  if (!signal.aborted) place("view").setAttribute("aria-busy", "false");
}

async function follow({ moveFocus }, signal) {
  const linked = readLink(location.hash);
  const state = withExample(settled(linked));
  if (linkTo(linked.view, linked) !== linkTo(state.view, state))
    history.replaceState(null, "", linkTo(state.view, state));
  drawLinks(state);
  closeMenu();
  const view = VIEWS[state.view];
  if (!view) return noSuchView(state);
  const sameView = shown.view === state.view;
  drawTitle(view, state);
  drawQuestion(view, state);
  shown.view = state.view;
  if (!sameView && moveFocus) arrive();
  if (sameView && shown.result?.update) return shown.result.update(state);
  shown.result?.stop?.();
  shown.result = null;
  const missing = missingWords(view.needs, state);
  if (missing) return fill(place("view"), h("p", { class: "empty" }, missing));
  await answer(view, state, signal, sameView);
}

async function answer(view, state, signal, sameView) {
  const target = place("view");
  if (!sameView || !target.children.length) fill(target, loading());
  try {
    const found = await view.load(state, about, signal);
    if (signal.aborted) return;
    drawTitle(view, state); // the answer may have told what things are called
    shown.question.rename?.();
    const rename = () => shown.question?.rename?.();
    shown.result = view.show(found, state, { about, remember, go, rename });
    fill(target, shown.result.nodes);
    say(shown.result.said);
    showPart(state.part);
  } catch (problem) {
    if (signal.aborted) return;
    fill(
      target,
      problemCard(problem, () => open({ moveFocus: false }), { state, about }),
    );
  }
}

/** A link may lead to one part of a view. */
function showPart(part) {
  const found = part && [...document.querySelectorAll("[data-part]")].find((node) => node.dataset.part === part);
  if (!found) return;
  found.classList.add("asked-for");
  found.querySelector("[tabindex='-1']")?.focus({ preventScroll: true });
  found.scrollIntoView({ block: "start" });
}

function noSuchView(state) {
  shown.result?.stop?.();
  shown = { view: null, question: null, result: null };
  document.title = "No such page · carp";
  place("title").textContent = "No such page";
  fill(place("question"));
  const problem = { title: "There is no such page", detail: `This link names a view “${state.view}”.` };
  return fill(place("view"), problemCard({ ...problem, fix: "Choose a view above." }));
}

function arrive() {
  scrollTo(0, 0);
  place("title").focus({ preventScroll: true });
}

// ---- menu, theme, and the way past them

// The link behind the # holds the state, so skipping must not write there.
function listenToSkip() {
  place("skip").addEventListener("click", (event) => {
    event.preventDefault();
    place("content").focus();
  });
}

function closeMenu() {
  place("menu").setAttribute("aria-expanded", "false");
}

function listenToMenu() {
  const menu = place("menu");
  menu.addEventListener("click", () => {
    menu.setAttribute("aria-expanded", String(menu.getAttribute("aria-expanded") !== "true"));
  });
  menu.parentElement.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    closeMenu();
    menu.focus();
  });
}

function listenToTheme() {
  const button = place("theme");
  const root = document.documentElement;
  const show = () => (place("theme-word").textContent = root.dataset.theme ?? "auto");
  button.addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(root.dataset.theme ?? "auto") + 1) % THEMES.length];
    if (next === "auto") delete root.dataset.theme;
    else root.dataset.theme = next;
    try {
      localStorage.setItem("carp-theme", next);
    } catch {
      // Without storage the choice holds until the page is closed.
    }
    show();
  });
  show();
}

// ---- beginning

async function begin() {
  fill(place("view"), loading());
  try {
    about = await get("about");
  } catch (problem) {
    fill(place("view"), problemCard(problem, begin));
    return;
  }
  drawAbout();
  await open({ moveFocus: false });
  addEventListener("hashchange", () => open({ moveFocus: true }));
}

listenToSkip();
listenToMenu();
listenToTheme();
begin();
