"""The constraints that ship with posttrain, by kind: the 25 of IFEval."""

from posttrain.learning.rewards.constraints.base import Constraint
from posttrain.learning.rewards.constraints.combination import (
    RepeatPrompt,
    TwoResponses,
)
from posttrain.learning.rewards.constraints.content import (
    Placeholders,
    Postscript,
)
from posttrain.learning.rewards.constraints.form import (
    BulletPoints,
    Highlights,
    JsonOnly,
    OneOfThreeAnswers,
    Sections,
    Title,
)
from posttrain.learning.rewards.constraints.keywords import (
    ForbiddenWords,
    KeywordFrequency,
    KeywordsExist,
    LetterFrequency,
)
from posttrain.learning.rewards.constraints.language import (
    CapitalWordFrequency,
    EnglishCapital,
    EnglishLowercase,
    ResponseLanguage,
)
from posttrain.learning.rewards.constraints.length import (
    FirstWordOfParagraph,
    NumberOfParagraphs,
    NumberOfSentences,
    NumberOfWords,
)
from posttrain.learning.rewards.constraints.punctuation import (
    NoComma,
)
from posttrain.learning.rewards.constraints.start_end import (
    EndPhrase,
    Quotation,
)
from posttrain.stage.slots import Slot

CONSTRAINTS = Slot(
    "constraint",
    Constraint,
    {
        "keywords:existence": KeywordsExist,
        "keywords:frequency": KeywordFrequency,
        "keywords:forbidden_words": ForbiddenWords,
        "keywords:letter_frequency": LetterFrequency,
        "language:response_language": ResponseLanguage,
        "change_case:english_capital": EnglishCapital,
        "change_case:english_lowercase": EnglishLowercase,
        "change_case:capital_word_frequency": CapitalWordFrequency,
        "length_constraints:number_words": NumberOfWords,
        "length_constraints:number_sentences": NumberOfSentences,
        "length_constraints:number_paragraphs": NumberOfParagraphs,
        "length_constraints:nth_paragraph_first_word": FirstWordOfParagraph,
        "detectable_content:number_placeholders": Placeholders,
        "detectable_content:postscript": Postscript,
        "detectable_format:number_bullet_lists": BulletPoints,
        "detectable_format:constrained_response": OneOfThreeAnswers,
        "detectable_format:number_highlighted_sections": Highlights,
        "detectable_format:multiple_sections": Sections,
        "detectable_format:json_format": JsonOnly,
        "detectable_format:title": Title,
        "combination:two_responses": TwoResponses,
        "combination:repeat_prompt": RepeatPrompt,
        "startend:end_checker": EndPhrase,
        "startend:quotation": Quotation,
        "punctuation:no_comma": NoComma,
    },
    one_of=("followed",),
)
