"""What a field means stands below it in the source, and is found when it is asked for."""

from pydantic import Field

from posttrain.stage.config import StageConfig
from posttrain.stage.descriptions import DescribedJsonSchema, descriptions


class Base(StageConfig):
    steps: int = 1
    """How often,

    at most."""
    rate: float = 0.1
    """How fast."""
    silent: int = 0


class Derived(Base):
    rate: float = 0.2
    told: int = Field(default=0, description="Said by hand.")
    """Not this."""
    start: int = Field(default=0, alias="from")
    """Where it begins."""


class Around(StageConfig):
    inner: Derived = Derived()
    """What is inside."""


def test_a_field_means_what_stands_below_it_and_no_other():
    assert descriptions(Base) == {"steps": "How often,\n\nat most.", "rate": "How fast."}


def test_a_field_stated_anew_takes_no_text_of_its_base():
    assert descriptions(Derived) == {
        "steps": "How often,\n\nat most.",
        "told": "Said by hand.",
        "start": "Where it begins.",
    }


def test_a_class_of_a_function_is_found_too_and_one_without_source_has_no_texts():
    class Local(StageConfig):
        depth: int = 0
        """How deep."""

    made = type("Made", (StageConfig,), {"__annotations__": {"depth": int}, "depth": 0})
    assert descriptions(Local) == {"depth": "How deep."}
    assert descriptions(made) == {}


def test_a_json_schema_says_them_also_of_configs_inside():
    schema = Around.model_json_schema(schema_generator=DescribedJsonSchema)
    inner = schema["$defs"]["Derived"]["properties"]
    assert schema["properties"]["inner"]["description"] == "What is inside."
    assert inner["from"]["description"] == "Where it begins."
    assert inner["told"]["description"] == "Said by hand."
    assert "description" not in inner["silent"]
