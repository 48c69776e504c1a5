// What people like and dislike about a thing, and what of it matters to one person.

import { get, part } from "../api.js";
import { h, name } from "../dom.js";
import { notes } from "../explanation.js";
import { gauge, sign } from "../gauges.js";
import { isNamed, legend, marksAs, namedBlock, quote, sideBlock } from "../sentences.js";
import { linkTo } from "../state.js";
import { called } from "../titles.js";
import { SIGN, counted, number } from "../words.js";
import { portrait } from "./person.js";
import { jumps, sentence } from "./question.js";

const HEADING = { positive: "What people like", negative: "What people dislike" };

export const thing = {
  label: "Thing",
  needs: { item: "thing" },
  title: (state) => (state.item ? `What do people say of ${called(state.item)}?` : "Thing"),
  question: (state, go) =>
    sentence(state, go, [
      "What do people say of ",
      { item: "Thing" },
      " and what of it matters to ",
      { user: "Person" },
      "?",
    ]),

  async load({ user, item }, about, signal) {
    const profile = get(`items/${part(item)}/profile`, {}, { signal });
    const summary = user ? get(`items/${part(item)}/summary`, { user }, { signal }) : null;
    // A model that cannot sum up still shows the profile; what went wrong is said in its place.
    const [told, chosen] = await Promise.all([profile, summary?.catch((problem) => ({ problem }))]);
    signal.throwIfAborted();
    return { profile: told, summary: chosen };
  },

  show({ profile, summary }, state, { about }) {
    return {
      said: `${called(state.item)}: ${counted(profile.reviews, "review")}, average ${number(profile.mean)}.`,
      nodes: [
        portrait(profile, about, { reviews: "Reviews received", average: "Average rating" }),
        summary ? summarySection(summary, state, readsSentences(profile)) : chooseReader(),
        notes(profile.notes),
        opinionsPair(profile),
        state.user &&
          jumps([
            [linkTo("why", state), `How would ${state.user} rate it?`],
            [linkTo("compare", { user: state.user, item: state.item }), "Compare with another thing"],
          ]),
      ],
    };
  },
};

function opinionsPair(profile) {
  const { liked = [], disliked = [] } = profile;
  if (!liked.length && !disliked.length && profile.notes?.length) return null; // the notes say why
  return h(
    "div",
    { class: "two opinions-pair" },
    legend(...(readsSentences(profile) ? ["about"] : ["own", "shared"])),
    opinions("positive", liked, profile),
    opinions("negative", disliked, profile),
  );
}

const chooseReader = () =>
  h("p", { class: "empty" }, "Choose a person above to read what of these reviews matters to them.");

function summarySection(summary, state, named) {
  const heading = h("h2", null, "What matters to ", name(state.user));
  if (summary.problem) {
    const { title, detail } = summary.problem;
    return h("section", null, heading, h("p", { class: "empty" }, [title, detail].filter(Boolean).join(": ")));
  }
  const sentences = (summary.sentences ?? []).map((found) => (named ? marksAs("counts", found) : found));
  return h(
    "section",
    { class: "summary-section" },
    heading,
    h("p", { class: "soft lead" }, "Sentences of its reviews that count most for this person."),
    sentences.some(({ marks }) => marks?.length) && legend(...(named ? ["counts"] : ["own", "shared"])),
    sentences.length
      ? h(
          "ol",
          { class: "summary-list card" },
          sentences.map((found) =>
            h("li", { class: found.sentiment ?? "" }, quote(found, { skip: "item", before: signOf(found, named) })),
          ),
        )
      : h("p", { class: "empty" }, "No sentence of its reviews stands out for this person."),
  );
}

function signOf({ sentiment, aspect, tone, turned }, named) {
  if (!(sentiment in SIGN)) return null;
  const speaks = sentiment === "positive" ? "speaks for it" : "speaks against it";
  const other = tone === (sentiment === "positive" ? "complaint" : "praise");
  const who = turned ? "for this person" : "to the model";
  const words = other ? `${speaks} ${who}, though it ${tone === "praise" ? "praises" : "complains"}` : speaks;
  const label = typeof aspect === "number" && !named ? `${words}, aspect ${aspect}` : words;
  return h("span", { class: "sign", role: "img", "aria-label": label, title: label }, SIGN[sentiment]);
}

function opinions(sentiment, rows, profile) {
  const most = Math.max(...rows.map((row) => row.strength), Number.EPSILON);
  return h(
    "section",
    { class: `opinions ${sentiment}` },
    h("h2", null, sign(sentiment), HEADING[sentiment]),
    rows.length
      ? rows.map((row) => (bySentences(row) ? namedOpinion(row, sentiment, profile) : opinionCard(row, most, profile)))
      : h("p", { class: "empty" }, "Nothing stands out."),
  );
}

/** An opinion read off the sentences themselves, which no viewpoint has to meet. */
const bySentences = ({ aspect, viewpoints }) => isNamed(aspect, "aspect") && !viewpoints?.length;

const readsSentences = ({ liked = [], disliked = [] }) => [...liked, ...disliked].some(bySentences);

function namedOpinion({ aspect, raters }, sentiment, profile) {
  const of = `${raters} of ${counted(profile.raters ?? profile.reviews, "rater")}`;
  const words = sentiment === "positive" ? `${of} praise this` : `${of} complain of this`;
  return h("article", { class: "card" }, namedBlock(aspect, words, { skip: "item" }));
}

function opinionCard({ aspect, raters, prevailing, strength, viewpoints }, most, profile) {
  const people = `${raters} of ${counted(profile.raters ?? profile.reviews, "rater")}`;
  const title = `mean coupling times capsule length; the feeling prevails for ${prevailing ?? "some"} of them`;
  const phrases = [...new Set((viewpoints ?? []).flatMap((viewpoint) => viewpoint.phrases ?? []))].slice(0, 4);
  return h(
    "article",
    { class: "card" },
    sideBlock(aspect, "aspect", { skip: "item", level: "h3" }),
    gauge(people, strength / most, `strength ${number(strength)}`, title),
    phrases.length > 0 &&
      h(
        "p",
        { class: "small soft" },
        "Matters to those who write ",
        phrases.map((phrase, at) => [at ? ", " : "", "“", name(phrase), "”"]),
      ),
  );
}
