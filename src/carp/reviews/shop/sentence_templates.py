"""The words of the made-up shop: sentence templates and what may stand in their gaps.

A gap `{name}` is filled from the topic's own choices, or else from `SHARED`. Choices are written most common first.
What follows "a" starts with a consonant throughout, so that no sentence needs its article corrected. Words that carry a
topic belong to that topic alone: a sentence can be traced back to its topic by them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


def _options(text: str) -> tuple[str, ...]:
    return tuple(option.strip() for option in text.split("|"))


def _choices(**gaps: str) -> dict[str, tuple[str, ...]]:
    return {name: _options(text) for name, text in gaps.items()}


def _lines(block: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in block.strip().splitlines())


@dataclass(frozen=True)
class TopicWords:
    """How people write about one topic: praise, complaint, a shrug, and why the topic matters to them."""

    choices: Mapping[str, tuple[str, ...]]
    positive: tuple[str, ...]
    negative: tuple[str, ...]
    shrug: tuple[str, ...]
    stance: tuple[str, ...]


SHARED = _choices(
    very="very | really | surprisingly | remarkably | seriously | truly | genuinely",
    great="great | superb | brilliant | fantastic | terrific | wonderful | first-rate | marvellous",
    poor="poor | disappointing | terrible | dreadful | lousy | miserable | pathetic | bad",
    weeks="a week | two weeks | a month | a few weeks | three months | half a year",
    years="years | two years | a year and a half | three years",
)

# How a sentence may follow on the one before it.
LINKS = _choices(
    positive="Luckily, | Thankfully, | Happily,",
    negative="Unfortunately, | Sadly, | Alas,",
    contrast="But | However, | Then again, | On the other hand,",
    addition="Also, | Besides, | On top of that,",
)

MAKERS = _options("""
    Alder | Birch | Cedar | Dorado | Ember | Fjord | Granite | Harbour | Indigo | Juniper | Kestrel | Larch | Meadow |
    Nimbus | Osprey | Pebble | Quartz | Rowan | Sparrow | Tundra | Umber | Vesper | Willow | Yarrow | Zephyr | Lantern |
    Marlow | Northwind | Orchard | Pinecrest
""")

# readable kind -> the noun people use for it
KINDS: Mapping[str, str] = {
    "travel amp": "amp",
    "pocket speaker": "speaker",
    "field recorder": "recorder",
    "stage headset": "headset",
    "shoulder radio": "radio",
    "lap keyboard": "keyboard",
    "mini synth": "synth",
    "hand drum machine": "drum machine",
    "belt player": "player",
    "roving mixer": "mixer",
}

WEIGHT = TopicWords(
    choices=_choices(
        light="light | lightweight | feathery | light and slim",
        heavy="heavy | hefty | bulky | weighty | ponderous",
        load="weight | bulk | heft | mass",
        bag="backpack | suitcase | rucksack | travel bag | daypack | duffel",
        grams="grams | ounces",
        gram="gram | ounce",
        nothing="next to nothing | almost nothing | less than my phone | less than a paperback | no more than an apple",
        ton="a ton | more than my laptop | as much as a brick | as much as a bowling ball | more than my cat",
        amazed="amazed | impressed | delighted | astonished",
        bricks="bricks | rocks | lead | wet sand",
        climb="stairs | hill | mountain | gangway",
    ),
    positive=_lines("""
        It is so {light} that I forget it is in my {bag}.
        The weight is {great}, I hardly notice it in my {bag}.
        Wonderfully {light}, it adds {nothing} to my {bag}.
        This {thing} weighs {nothing}, exactly what I wanted.
        I put it on the kitchen scale and the low weight {amazed} me.
        You can lift it with one finger, that is how {light} this {thing} is.
        Something this {light} can come along in every {bag}.
        A {very} {light} {thing} that never drags down my {bag}.
        My {bag} feels a lot lighter since I switched to this {thing}.
        Carrying it all day is no burden, it is {very} {light}.
        Finally a {light} {thing} that I can carry up the {climb} without panting.
        At a few hundred grams it is the lightest {thing} I have owned.
        I lifted my {bag} and thought I had left it at home.
        The {bag} stays {light}, because it weighs {nothing}.
    """),
    negative=_lines("""
        It is far too {heavy} for my {bag}.
        The sheer {load} of this {thing} is {poor}.
        This {thing} weighs {ton}.
        Much too {heavy}, it stays behind whenever I pack my {bag}.
        My {bag} gets {very} {heavy} with this {thing} inside.
        I put it on the kitchen scale and could not believe the {load}.
        Lugging it around is a workout, it is {very} {heavy}.
        So {heavy} that I was panting before I reached the platform.
        It has a few hundred grams too many for carrying it anywhere.
        It drags down my {bag} like a sack of {bricks}.
        Nobody wants to haul such a {heavy} {thing} up the {climb}.
        They call it portable, but it weighs {ton}.
        The {load} makes it useless for travelling, my {bag} was over the limit at once.
        Way too much {load}, I ended up hauling it on a trolley.
    """),
    shrug=_lines("""
        The weight is about average, neither {light} nor {heavy}.
        It weighs roughly what every {thing} of this kind weighs.
        As for the {load}, my {bag} has seen better and worse.
        The {load} is nothing to write home about, it fits the {bag}.
    """),
    stance=_lines("""
        I travel a lot, so every {gram} counts.
        I hike with my gear, so the weight matters most to me.
        I live out of a {bag}, so I always pack light.
        With one {bag} for everything, I ask about the {grams} first.
        The first thing I check is how much something weighs.
        I count every {gram} when I pack my {bag}.
    """),
)

DURABILITY = TopicWords(
    choices=_choices(
        build="build quality | construction | casing | workmanship | housing",
        part="hinge | latch | clasp | bracket | seam | corner guard",
        sturdy="sturdy | solid | rugged | tough | robust | durable | hardy",
        flimsy="flimsy | fragile | brittle | shoddy | rickety",
        broke="broke | snapped | cracked | came loose | fell apart",
        broken="broken | cracked | come loose | split | snapped",
        floor="onto concrete | down the steps | on the pavement | off the roof of my van | out of the loft",
        rough="rough | daily | careless | merciless",
        ordeal="two tours | a whole festival season | my toddlers | a thunderstorm | three summer camps",
        glue="duct tape | superglue | zip ties | a paper clip",
        heirs="all of us | my car | most marriages | my grandchildren",
    ),
    positive=_lines("""
        It is built like a tank and shows no damage after {weeks}.
        The {build} is {very} {sturdy}.
        I dropped it {floor} and it did not get a scratch.
        After {years} of {rough} use nothing has {broken}.
        {great} {build}, every {part} is still tight.
        This {thing} will outlast {heirs}, it is that {sturdy}.
        Every {part} feels {sturdy} and made to last.
        It has survived {ordeal} without a single crack.
        A {sturdy} {thing} that takes a beating and keeps going.
        The {build} has held up without a flaw for {years}.
        Tough as nails, rain and dust have not damaged it.
        You can tell from the {part} that it will hold for {years}.
        Mine fell {floor}, and the {part} took it without a dent.
        {very} {sturdy} {build}, nothing wobbles and nothing rattles.
    """),
    negative=_lines("""
        It {broke} after {weeks}.
        The {part} {broke} after {weeks} of normal use.
        The {build} is {poor}, everything feels {flimsy}.
        The whole {thing} feels {very} {flimsy}, I am afraid of breaking it.
        The {part} was already cracked when I unpacked it.
        One small fall and the {part} had a crack.
        {poor} {build}, the {part} wobbles and rattles.
        This is the second one that {broke} on me.
        I had to fix the {part} with {glue}.
        Do not drop it, the {build} is {very} {flimsy}.
        It will not survive a season of {rough} use, the {part} is too {flimsy}.
        After {weeks} the {part} {broke}, and repairs are not possible.
        Anything with a {part} this {flimsy} should not leave the factory.
        It slipped {floor} and shattered into pieces.
    """),
    shrug=_lines("""
        The {build} is acceptable, neither {sturdy} nor {flimsy}.
        So far nothing has {broken}, but the {part} does not feel {sturdy} either.
        The {build} is what you would expect, with a dent here and there.
        One {part} got a scratch, otherwise the {build} is okay.
    """),
    stance=_lines("""
        I am careless with my gear, so it has to be {sturdy}.
        My things get dropped and knocked about, so they must be made to last.
        I want gear that survives {years} of touring.
        Durability comes first for me, I hate replacing broken stuff.
        I break everything sooner or later, so I test every {part}.
        I only trust {sturdy} things, because mine live in a van.
    """),
)

PRICE = TopicWords(
    choices=_choices(
        price="price | price tag | cost",
        bargain="bargain | steal | good deal | real bargain",
        cheap="cheap | affordable | inexpensive | fairly priced",
        dear="overpriced | expensive | pricey | costly",
        money="money | cash",
        penny="penny | cent | dollar",
        shops="shops | brands | dealers | stores",
        charge="ask | want | take",
        wallet="wallet | bank account | budget | purse",
        bundle="a bundle | a small fortune | fifty dollars | a third",
        sale="sale | discount | coupon | voucher",
        absurd="ridiculous | absurd | outrageous | a joke | way too high",
    ),
    positive=_lines("""
        At this price the {thing} is a {bargain}.
        The {price} is {great}, I have paid twice as much for less.
        It is {very} {cheap} compared with what other {shops} {charge}.
        You get a lot for your {money} here.
        It is worth every {penny} I paid.
        Thanks to a {sale} I saved {bundle}.
        A fair price for once, my {wallet} is grateful.
        You will not find this {thing} for less {money} anywhere.
        {great} value, my {wallet} says thank you.
        It costs half of what the big {shops} {charge}.
        For so little {money} there is simply nothing to complain about.
        The {price} is so low that I paid for two.
        A {bargain} like this does not come along often.
        {very} {cheap}, and with the {sale} it was a {bargain}.
    """),
    negative=_lines("""
        This {thing} is {very} {dear}.
        The {price} of this {thing} is {absurd}.
        I paid a fortune and regret every {penny}.
        It is simply not worth the {money} they {charge}.
        You pay for the famous brand and get little for your {money}.
        A waste of {money}, wait for a {sale}.
        Other {shops} {charge} half as much.
        Simply {dear} for what you get.
        My {wallet} still hurts from this price.
        They raised the price again, and it was {dear} already.
        At that price I feel ripped off.
        Save your {money}, this {thing} costs twice what it should.
        {poor} value, my {wallet} will not forgive me.
        So {dear} that even with a {sale} I paid too much.
    """),
    shrug=_lines("""
        The {price} is about what all {shops} {charge}.
        Neither a {bargain} nor {dear}, just an ordinary price.
        The {price} is okay, my {wallet} has no opinion.
        I paid the usual price, no {sale} and no surcharge.
    """),
    stance=_lines("""
        I am on a small budget, so the {price} decides.
        I compare prices for weeks before I spend any {money}.
        As a student I have to turn over every {penny}.
        Value for money is what I want first of all.
        I never pay full price and always wait for a {sale}.
        My {wallet} is thin, so I ask about the {price} first.
    """),
)

SOUND = TopicWords(
    choices=_choices(
        sound="sound | tone | sound quality | audio",
        range="bass | treble | midrange | low end",
        clear="clear | crisp | rich | warm | full | detailed",
        muddy="muddy | tinny | muffled | harsh | hollow | shrill",
        hiss="hiss | hum | buzz | crackle",
        music="jazz | folk | techno | Bach | blues | choir music",
        note="note | cymbal | violin | guitar string | breath of the singer",
        song="song | track | tune | ballad",
        wall="door | pillow | blanket | sock",
        can="a tin can | an old telephone | a bathroom at the far end of the hall | a wet megaphone",
    ),
    positive=_lines("""
        The {sound} is {very} {clear}.
        {great} {sound}, the {range} is {clear} and the vocals come through.
        My favourite {song} never had such {clear} {sound}.
        It fills the whole room with {clear} sound.
        The {range} stays {clear} even at full volume.
        You can hear every {note} in the mix.
        The {sound} gave me goosebumps on the first {song}.
        Such {clear} {sound} from this {thing}, my ears are happy.
        No {hiss}, no {hiss}, only {clear} sound.
        The bass is deep and the vocals are {clear}.
        Voices and guitars are {clear} and {clear}.
        I played {music} all evening and loved the {sound}.
        {music} is a joy to hear, with {clear} {range} in every {song}.
        The {sound} is {great}, I heard a {note} I had never heard before.
    """),
    negative=_lines("""
        The {sound} is {very} {muddy}.
        {poor} {sound}, the {range} is {muddy} and the vocals drown.
        It sounds like {can}.
        The {range} turns {muddy} as soon as you raise the volume.
        There is a constant {hiss} behind every {song}.
        My ears still ring from the {muddy} {range}.
        I could not hear a single {note} through the {hiss}.
        Even {music} sounds {muddy} on this {thing}.
        The {sound} is {poor}, with no {range} at all.
        Everything sounds {muddy}, like listening through a {wall}.
        It distorts at any volume and the {range} is {muddy}.
        No depth in the {sound}, only {muddy} noise.
        I stopped the {song} halfway, the {sound} was that {muddy}.
        {very} {muddy} {sound}, and a {hiss} on top of it.
    """),
    shrug=_lines("""
        The {sound} is okay, neither {clear} nor {muddy}.
        The {range} is average, fine for a {song} in the kitchen.
        As for the {sound}, my ears have heard better and worse.
        The {sound} is neutral, some {hiss} but nothing that ruins a {song}.
    """),
    stance=_lines("""
        I listen closely, so the {sound} has to be right.
        As a musician I judge everything by its {sound}.
        My ears are picky, the {sound} comes first.
        I listen to {music} for hours, so I need {clear} {sound}.
        For me it is all about the {sound}.
        I hear every {hiss}, people tease me about my ears.
    """),
)

LOOKS = TopicWords(
    choices=_choices(
        design="design | styling | finish | appearance",
        pretty="beautiful | gorgeous | classy | pretty | sleek | charming",
        ugly="ugly | hideous | tacky | garish | drab | gaudy",
        colour="red | navy blue | mint green | copper | walnut | cream | turquoise",
        trim="trim | lacquer | paintwork | stitching",
        shelf="shelf | desk | sideboard | windowsill",
        friends="friends | visitors | guests | colleagues",
        era="retro | vintage | minimalist | modern",
        hide="behind a curtain | in a cupboard | under a tablecloth | behind the flowerpots",
        mustard="mustard | swamp water | old toothpaste | faded cardboard",
        toy="a toy from a cereal box | a prop from a bad film | a hospital appliance | a plastic lunchbox",
    ),
    positive=_lines("""
        The {design} is {very} {pretty}.
        It looks {very} {pretty} on my {shelf}.
        The {colour} {trim} is {pretty}.
        My {friends} keep admiring the {design}.
        Such a {pretty} {thing}, like something from a design museum.
        I love the {colour} {trim}, the photos do not do it justice.
        So {pretty} that I leave it out on the {shelf} for everyone to see.
        The {era} {design} caught my eye at once.
        {great} {design}, it matches my {shelf}.
        The {colour} version looks even more {pretty} in daylight.
        A real eye-catcher with its {colour} {trim}.
        Every line of it is {pretty}.
        It looks {great}, with {colour} {trim} and a {pretty} {design}.
        The {colour} one is so {pretty} that my {friends} took photos of it.
    """),
    negative=_lines("""
        The {design} is {very} {ugly}.
        It is so {ugly} that I hide it {hide}.
        The {colour} in the photos looks more like {mustard} in daylight.
        It looks {ugly}, like {toy}.
        My {friends} laughed at the {design}.
        {poor} {design}, the {colour} {trim} is {ugly}.
        The {trim} has blotches and looks {ugly}.
        That {ugly} {design} spoils my whole {shelf}.
        The {era} {design} is meant to be {pretty}, but it looks {ugly}.
        I wanted something nice to see on my {shelf}, not this {ugly} {thing}.
        The {colour} {trim} clashes with everything, it is {ugly}.
        Whoever chose this {ugly} {colour} should never design anything again.
        An eyesore, I keep it {hide}.
        The {design} looks {poor}, like {toy}.
    """),
    shrug=_lines("""
        The {design} is plain, neither {pretty} nor {ugly}.
        It looks like every other {colour} box.
        As for the {design}, my {friends} have not noticed it at all.
        The {colour} {trim} is okay, if not to everyone's taste.
    """),
    stance=_lines("""
        I care a lot about how things look on my {shelf}.
        I am an illustrator, so the {design} matters to me.
        Anything in my living room has to look {pretty}.
        I choose with my eyes, the {design} comes first.
        I collect {era} furniture, and I am fussy about {trim}.
        For me it has to look {pretty}, life is too short for {ugly} things.
    """),
)

COMFORT = TopicWords(
    choices=_choices(
        strap="strap | padding | harness | cushioning | belt",
        body="shoulder | neck | back | hip | collarbone",
        skin="skin | fingers | palms | knuckles",
        soft="comfortable | soft | comfy | snug | cosy | gentle",
        stiff="uncomfortable | stiff | scratchy | painful",
        hours="many hours | a whole afternoon | an entire rehearsal | six hours straight",
        minutes="ten minutes | half an hour | a short walk | one set",
        hurt="pinched | chafed | rubbed | squeezed",
        glove="glove | favourite slipper | second skin | well-worn jacket",
        marks="blisters | welts | bruises | sore spots",
    ),
    positive=_lines("""
        The {strap} is {very} {soft}.
        I wore it for {hours} and nothing {hurt}.
        It sits so well that my {body} does not feel it.
        The {strap} feels {soft} on my {skin}.
        {great} {strap}, my {body} does not hurt even after {hours}.
        It fits me like a {glove}, {very} {soft}.
        Wearing it for {hours} is no problem, the {strap} is {soft}.
        The {strap} is {soft} and never {hurt} my {body}.
        My {body} relaxed at once, the {strap} is {great}.
        The {strap} rests nicely on the {body}, {very} {soft}.
        Thanks to the {soft} {strap} I can wear this {thing} for {hours}.
        Even after {hours} my {body} felt as fresh as in the morning.
        The {strap} is so {soft} that I forget I am wearing it.
        No {marks} on my {skin}, and the {strap} stays {soft}.
    """),
    negative=_lines("""
        The {strap} is {very} {stiff}.
        The {strap} cuts into my {body} after {minutes}.
        My {body} was sore after {minutes}.
        The {strap} {hurt} my {body} and left {marks}.
        {poor} {strap}, I got {marks} on my {skin}.
        I could not wear it longer than {minutes}, it is too {stiff}.
        The {stiff} {strap} ruins every walk, my {body} aches.
        This {thing} is {very} {stiff} to wear.
        After {minutes} I had {marks} on my {skin}.
        The {strap} presses on the {body}, and no adjusting makes it {soft}.
        My {body} still aches from that {stiff} {strap}.
        Whoever made the {strap} has never worn it for {hours}.
        It digs into my {skin}, the {strap} is {stiff}.
        Way too {stiff}, my {body} gave up after {minutes}.
    """),
    shrug=_lines("""
        The {strap} is average, neither {soft} nor {stiff}.
        Wearing it is okay, my {body} gets used to the {strap}.
        The {strap} could be softer, but no {marks} so far.
        As for the {strap}, my {body} has no complaints and no praise.
    """),
    stance=_lines("""
        I have a bad {body}, so it must be {soft} to wear.
        I wear my gear for {hours}, so the {strap} matters most.
        Comfort is everything for me, my {body} aches easily.
        I have sensitive {skin}, so I test the {strap} first.
        I need something {soft}, because I wear it for {hours}.
        With my {body} trouble I always ask about the {strap}.
    """),
)

EASE_OF_USE = TopicWords(
    choices=_choices(
        controls="controls | buttons | menus | settings | dials",
        manual="manual | app | setup | interface | display",
        easy="easy | simple | intuitive | straightforward | user-friendly | self-explanatory",
        hard="confusing | complicated | cryptic | fiddly | baffling",
        learner="grandmother | six-year-old | technophobe uncle | entire family",
        quick="two minutes | no time | under five minutes | one lunch hour",
        steps="pairing | tuning in | switching modes | saving a preset | updating the firmware",
        puzzle="a degree in engineering | a second brain | the patience of a monk | three tutorial videos",
    ),
    positive=_lines("""
        The {controls} are {very} {easy}.
        The {manual} is {easy}, I was up and running in {quick}.
        Even my {learner} figured out the {controls} without help.
        {great} {controls}, everything is where you expect it.
        I never opened the instructions, the {manual} is that {easy}.
        Switch it on, touch one of the {controls}, done.
        The {manual} could not be simpler, all {controls} make sense.
        {steps} takes one click, the {manual} is {very} {easy}.
        The {manual} is {great}, {steps} worked on the first try.
        {very} {easy}, I understood all the {controls} in {quick}.
        With {controls} this {easy}, my {learner} uses it too.
        It is {very} {easy}, {steps} took me {quick}.
        I had the {manual} figured out in {quick}.
        Everything about the {controls} is {easy} and logical.
    """),
    negative=_lines("""
        The {controls} are {very} {hard}.
        You need {puzzle} to understand the {manual}.
        The {manual} is {hard}, I gave up twice.
        {steps} never works, because the {controls} are {hard}.
        {poor} {manual}, I still do not understand the {controls}.
        I tried all the {controls} and nothing sensible happened.
        My {learner} and I both gave up on the {manual}.
        The {manual} is {very} {hard}, {steps} took me all evening.
        Such {hard} {controls}, I read the instructions three times.
        The {controls} are labelled in a {hard} way, I always pick the wrong one.
        {steps} requires {puzzle}.
        Why are the {controls} so {hard}?
        The {manual} is {poor}, you click through endless {controls}.
        Whoever invented the {hard} {manual} has never tried {steps}.
    """),
    shrug=_lines("""
        The {controls} are okay, neither {easy} nor {hard}.
        The {manual} takes an evening to learn, then it is fine.
        {steps} works, though the {controls} take some learning.
        The {manual} is average, I have clicked through better and worse.
    """),
    stance=_lines("""
        I am not technical, so the {controls} must be {easy}.
        I have no patience for a {hard} {manual}.
        I want to press one button and be done.
        If I need the instructions, it is too {hard} for me.
        My {learner} uses it too, so I need {easy} {controls}.
        For me the {manual} has to be {easy}, I hate fiddling with {controls}.
    """),
)

BATTERY = TopicWords(
    choices=_choices(
        battery="battery | built-in battery | lithium battery",
        charger="charger | charging cable | USB cable | power adapter",
        socket="socket | power outlet | wall plug",
        lasting="long-lasting | strong | dependable | tireless",
        weak="weak | feeble | short-lived | dismal",
        span="two days | a whole weekend | fourteen hours | three long evenings | twenty hours",
        short="an hour | ninety minutes | half a concert | a single episode",
        drained="drained | empty | dead | flat",
        wild="at the campsite | on the train | in the desert | on the ferry | in the park",
    ),
    positive=_lines("""
        The {battery} is {very} {lasting}.
        The {battery} lasts {span} on one charge.
        {great} {battery}, I only charge it once a week.
        I left the {charger} at home and the {battery} still lasted {span}.
        One battery charge gets me through {span}.
        After {span} the {battery} was still half charged.
        I keep forgetting where the {charger} is, the {battery} is that {lasting}.
        It recharges in minutes and the {battery} lasts {span}.
        The {battery} never let me down {wild}.
        No {charger} for {span}, and the {battery} held out.
        A {lasting} {battery}, it lasted {span} {wild}.
        We were {wild} for {span}, and one full charge was plenty.
        The battery life is {great}, even in the cold it is {lasting}.
        Charging is quick, and the {battery} is {very} {lasting}.
    """),
    negative=_lines("""
        The {battery} is {very} {weak}.
        The {battery} is {drained} after {short}.
        {poor} {battery}, I am always hunting for a {socket}.
        It dies after {short}, even with a full charge.
        I spend more time with the {charger} than with the {thing}.
        They promise {span}, but the {battery} is {drained} after {short}.
        Charging takes all night and the {battery} is still {weak}.
        The {battery} went {drained} {wild}, with no {charger} around.
        Without a {charger} nearby this {battery} is useless.
        {weak} {battery}, it was {drained} before lunch.
        I have to recharge it after {short}.
        The battery life is {poor}, it loses charge even when switched off.
        It was {drained} once more {wild}, what a {weak} {battery}.
        Such a {weak} {battery}, {short} and it needs the {charger}.
    """),
    shrug=_lines("""
        The {battery} is average, neither {lasting} nor {weak}.
        One battery charge gets you through most of the day, as usual.
        The {battery} is okay, but take the {charger} along.
        As for the {battery}, I recharge it as often as my others.
    """),
    stance=_lines("""
        I am often {wild}, far from any {socket}, so I need a {lasting} {battery}.
        I play outdoors a lot, so the {battery} decides.
        I hate chargers, so I always ask about the {battery}.
        I am never near a {socket}, it has to run for {span}.
        What I need most is a {battery} that lasts {span}.
        Nothing annoys me more than a {battery} that is {drained}.
    """),
)

TOPIC_WORDS: Mapping[str, TopicWords] = {
    "weight": WEIGHT,
    "durability": DURABILITY,
    "price": PRICE,
    "sound": SOUND,
    "looks": LOOKS,
    "comfort": COMFORT,
    "ease of use": EASE_OF_USE,
    "battery": BATTERY,
}


@dataclass(frozen=True)
class FillerWords:
    """Sentences about no topic: how the purchase came about, what happened around it, and the verdict."""

    choices: Mapping[str, tuple[str, ...]]
    opening: tuple[str, ...]
    middle: tuple[str, ...]
    closing: tuple[str, ...]
    satisfied: tuple[str, ...]
    dissatisfied: tuple[str, ...]
    undecided: tuple[str, ...]


FILLER = FillerWords(
    choices=_choices(
        relative="nephew | sister | brother | daughter | son | mother | father | niece | cousin | godson",
        month="January | March | April | June | July | September | November | December",
        day="Monday | Tuesday | Wednesday | Thursday | Friday | Saturday",
        nth="second | third | fourth | fifth",
        few="two | three | four | five",
        event="a wedding | my birthday party | our street party | a school play | a picnic | band practice",
        somebody="neighbour | teacher | bandmate | flatmate | boss | dentist",
        parcel="parcel | package | box",
        timing="a day early | right on time | a day late | on a rainy morning | while I was out",
        extra="a sticker | a postcard | a sheet of paper | a handwritten card",
    ),
    opening=_lines("""
        Bought this {thing} for my {relative} in {month}.
        It was a birthday present for my {relative}.
        This is my {nth} {thing} from this maker.
        Ordered on a {day}, arrived the next {day}.
        My {somebody} told me about this {thing}.
        I have had it for {weeks} now.
        I picked it after reading a dozen other reviews.
        My old {thing} got lost when we moved house.
        This is the first review I have ever written, so bear with me.
        Got this {thing} just before {event}.
        My {relative} gave it to me in {month}.
        I needed this {thing} for {event}.
    """),
    middle=_lines("""
        Delivery took {few} days, as promised.
        The {parcel} arrived {timing}.
        The courier left the {parcel} with my {somebody}.
        My {relative} has already asked to borrow it.
        We took it to {event} in {month}.
        I wrote to the seller and got a friendly answer.
        There was {extra} in the {parcel}, which made my {relative} smile.
        I owned the previous model as well.
        My {somebody} has the same one and uses it on most days.
        I first tried it at {event}.
        It came in a plain {parcel} with {extra}.
        My {relative} and my {somebody} disagree about it, by the way.
    """),
    closing=_lines("""
        I will update this review in {few} months.
        I hope this helps someone to decide.
        Ask me in the comments if you want to know more.
        Thanks for reading this far.
        That is all I can say for now.
        Now I am off to {event}.
        More news after {event} in {month}.
        My {relative} says hello, by the way.
    """),
    satisfied=_lines("""
        All in all I am {very} happy with it.
        I would buy this {thing} again tomorrow.
        I can recommend it to anyone like me.
        One of my better purchases this year.
        Overall a {great} {thing}, and I am keeping it.
        My {somebody} has ordered one too, on my advice.
    """),
    dissatisfied=_lines("""
        All in all I am not happy with it.
        I would not buy this {thing} again.
        I cannot recommend it to anyone like me.
        It is going back on {day}.
        Overall a {poor} {thing}, at least for me.
        I have asked the seller to take it back.
    """),
    undecided=_lines("""
        All in all it is okay, no more and no less.
        There are good sides and bad sides to it.
        I might keep it, I might return it.
        Overall I am in two minds about this {thing}.
        Not for everyone, but not a mistake either.
    """),
)
