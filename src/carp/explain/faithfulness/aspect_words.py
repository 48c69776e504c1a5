"""Words that speak of an aspect which reviewers score by themselves: our own short lists, made before any result.

Words that judge anything (good, awful) are in none of them; those that judge one aspect alone (dirty, overpriced) are.
"""

from __future__ import annotations

ASPECT_WORDS: dict[str, frozenset[str]] = {
    name: frozenset(words.split())
    for name, words in {
        # hotels
        "service": "service services staff employee employees waiter waiters waitress concierge manager management "
        "server servers bartender porter housekeeper helpful friendly rude attentive courteous polite unfriendly",
        "cleanliness": "clean cleaned cleaner cleaning cleanliness dirty dirt filthy spotless stain stains stained "
        "dust dusty mold mould moldy mildew smell smelled smelly smells hygiene immaculate tidy roach roaches bugs",
        "value": "value price prices priced pricey cost costs expensive cheap cheaper overpriced money dollars euros "
        "worth bargain rate rates pay paid affordable reasonable fee fees charge charged",
        "rooms": "room rooms suite suites bathroom bathrooms shower bath bathtub tub furniture decor carpet balcony "
        "spacious closet furnishings toilet sink tv",
        "location": "location located walk walking distance metro subway station airport downtown center centre "
        "beach nearby close convenient district neighborhood neighbourhood blocks area tram bus central",
        "sleep quality": "sleep slept sleeping bed beds mattress mattresses pillow pillows noise noisy quiet loud "
        "comfortable uncomfortable bedding linens sheets duvet soundproof thin traffic",
        "check in / front desk": "desk reception receptionist checkin checked lobby clerk arrival arrived check front "
        "reservation booking",
        "business service": "internet wifi wireless wi fi business computer computers conference meeting email "
        "laptop printer connection ethernet",
        # beer
        "aroma": "aroma aromas nose smell smells scent scents fragrance fragrant bouquet whiff odor odour aromatic",
        "appearance": "appearance head lacing lace color colour colored coloured hazy clear cloudy pour pours poured "
        "foam foamy amber golden brown black copper ruby opaque looks looking orange yellow",
        "palate": "palate mouthfeel body bodied carbonation carbonated texture creamy thin thick watery smooth finish "
        "oily fizzy syrupy chewy viscous feel dry",
        "taste": "taste tastes tasted tasting flavor flavors flavour flavours flavored sweet bitter bitterness malty "
        "hoppy sour sweetness aftertaste malt malts hops roasted",
    }.items()
}


def aspect_words(name: str) -> frozenset[str]:
    """The words of an aspect by the name the data gives it; none where we have no list.

    >>> "wifi" in aspect_words("Business service (e.g., internet access)"), aspect_words("Karma")
    (True, frozenset())
    """
    return ASPECT_WORDS.get(name.partition("(")[0].strip().lower(), frozenset())
