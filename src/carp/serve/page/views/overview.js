// The owner's overview: praise and complaints by what they are about, things at risk, things loved by few, who left.

import { get } from "../api.js";
import { freshId, h, name } from "../dom.js";
import { sign } from "../gauges.js";
import { thumbnail } from "../pictures.js";
import { quote } from "../sentences.js";
import { linkTo } from "../state.js";
import { called, thingName } from "../titles.js";
import { capital, count, counted, number, percent } from "../words.js";

export const overview = {
  label: "Overview",
  needs: {},
  title: () => "What do people say of us?",
  question: () => ({ node: h("p", { class: "question" }, "What do people say of us?"), fields: {}, update() {} }),
  load: ({ since, until }, about, signal) => get("overview", { since, until }, { signal }),

  show(found, state, { go }) {
    return {
      said: `Overview of ${counted(found.reviews, "review")}.`,
      nodes: [
        h("p", { class: "soft lead" }, leadOf(found)),
        tools(found, state, go),
        h(
          "div",
          { class: "two opinions-pair" },
          aspectList("positive", "What people praise most", found.praised),
          aspectList("negative", "What people complain of most", found.complained),
        ),
        thingList("best", "Reviewed most", "The things that most reviews are about, with what is said against them.", found.most_reviewed),
        thingList(
          "at-risk",
          "Things at risk",
          "Rated clearly below what things get here, or clearly worse lately than before. Those with most reviews first.",
          found.at_risk,
        ),
        thingList(
          "loved-by-few",
          "Loved by few",
          "Few people know these, and those who do rate them clearly above the average. Worth showing to others.",
          found.loved_by_few,
        ),
        leftSection(found),
      ],
    };
  },
};

function leadOf({ reviews, held_back: held, read, mean }) {
  const average = mean === null ? "" : `, ${number(mean)} on average`;
  const some = read < reviews ? ` The sentences are from ${count(read)} of them, evenly spread.` : "";
  const kept = held ? ` ${counted(held, "review")} more ${held === 1 ? "is" : "are"} held back to test the predictions.` : "";
  return `${counted(reviews, "review")}${average}.${some}${kept}`;
}

function tools({ dates }, { since, until }, go) {
  const asked = new URLSearchParams(Object.entries({ since, until }).filter(([, day]) => day));
  const table = `api/overview.csv${asked.size ? `?${asked}` : ""}`;
  return h(
    "div",
    { class: "tools" },
    dates
      ? [
          dayField("From", since, dates, (day) => go({ since: day, part: undefined })),
          dayField("to", until, dates, (day) => go({ until: day, part: undefined })),
          (since || until) &&
            h("button", { type: "button", class: "quiet", on: { click: () => go({ since: undefined, until: undefined }) } }, "All dates"),
        ]
      : h("p", { class: "help" }, "These reviews have no dates, so no period can be chosen here."),
    h("a", { class: "button quiet", href: table, download: "overview.csv" }, "Download as a table (CSV)"),
    printButton(),
  );
}

/** A button that prints the page as it stands. */
export const printButton = () =>
  h("button", { type: "button", class: "quiet", on: { click: () => window.print() } }, "Print this page");

function dayField(label, value, { first, last }, change) {
  const id = freshId("day");
  const input = h("input", { type: "date", id, min: first, max: last, value: value ?? "" });
  input.addEventListener("change", () => change(input.value || undefined));
  return h("span", { class: "day" }, h("label", { for: id }, label), input);
}

function aspectList(sentiment, title, rows) {
  return h(
    "section",
    { class: `opinions ${sentiment}`, "data-part": sentiment === "positive" ? "praised" : "complained" },
    h("h2", { tabindex: -1 }, sign(sentiment), title),
    rows.length
      ? h(
          "div",
          { class: "lines" },
          rows.map((row, at) => aspectLine(row, at < 3)),
        )
      : h("p", { class: "empty" }, "Nothing is said clearly enough."),
  );
}

/** A line that opens to its sentences; the first ones are open. */
function aspectLine({ name: called, share, reviews, sentences }, open) {
  return h(
    "details",
    { class: "card line", open },
    h(
      "summary",
      null,
      h("h3", null, name(capital(called))),
      h("span", { class: "soft" }, `${percent(share)} of reviews (${count(reviews)})`),
      h("span", { class: "bar length", "aria-hidden": "true" }, h("span", { css: { width: `${Math.min(share * 200, 100)}%` } })),
    ),
    sentences.map((sentence) => quote(sentence)),
  );
}

function thingList(part, title, help, rows) {
  return h(
    "section",
    { "data-part": part },
    h("h2", { tabindex: -1 }, title),
    h("p", { class: "soft lead" }, help),
    rows.length
      ? h(
          "ul",
          { class: "columns" },
          rows.map((row) => thingLine(row)),
        )
      : h("p", { class: "empty" }, "None at the moment."),
  );
}

function thingLine({ item, facts, reviews, mean, why, sentences }) {
  return h(
    "li",
    { class: "card" },
    h(
      "div",
      { class: "named" },
      thumbnail(facts, called(item)),
      h("h3", null, h("a", { href: linkTo("thing", { item }) }, thingName(item))),
    ),
    h("p", { class: "soft small" }, `${counted(reviews, "review")}, ${number(mean)} on average`),
    why && h("p", { class: "line-why" }, `${capital(why)}.`),
    sentences.map((sentence) => quote(sentence, { skip: "item" })),
  );
}

function leftSection({ left }) {
  const help = "Their last review is long ago and was worse than their others. The most disappointed come first.";
  return h(
    "section",
    { "data-part": "left" },
    h("h2", { tabindex: -1 }, "People who left"),
    left === null
      ? h("p", { class: "empty" }, "These reviews have no dates, so nobody can be seen leaving.")
      : [
          h("p", { class: "soft lead" }, help),
          left.length
            ? h(
                "ul",
                { class: "columns" },
                left.map((row) => personLine(row)),
              )
            : h("p", { class: "empty" }, "Nobody at the moment."),
        ],
  );
}

function personLine({ user, item, reviews, mean, last, why, sentences }) {
  return h(
    "li",
    { class: "card" },
    h("h3", null, h("a", { href: linkTo("person", { user }) }, name(user))),
    h("p", { class: "soft small" }, `${counted(reviews, "review")}, ${number(mean)} on average`),
    h("p", { class: "line-why" }, `${capital(why)}.`),
    sentences.length
      ? sentences.map((sentence) => quote(sentence, { skip: "user" }))
      : h("p", { class: "soft small" }, "The last one, of ", last, ", was about ", thingName(item), "."),
  );
}
