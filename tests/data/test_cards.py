import pytest

from posttrain.data.cards import stated_license


@pytest.mark.parametrize(
    ("head", "stated"),
    [
        ("license: apache-2.0\nlanguage: en", {"license": "apache-2.0"}),
        (
            "license: other\nlicense_name: qwen-research\nlicense_link: LICENSE",
            {"license": "other", "license_name": "qwen-research", "license_link": "LICENSE"},
        ),
        ("license: [mit, cc-by-4.0]", {"license": "mit, cc-by-4.0"}),
        ("language: en", {}),
        ("- a list", {}),
        ("license: [mit", {}),
    ],
)
def test_the_head_of_a_card_states_the_license_in_its_own_words(tmp_path, head, stated):
    (tmp_path / "README.md").write_text(f"---\n{head}\n---\n# A model\nlicense: not-this\n")
    assert stated_license(tmp_path) == stated


def test_without_a_card_or_a_head_nothing_is_stated(tmp_path):
    assert stated_license(tmp_path) == {}
    (tmp_path / "README.md").write_text("# A model\nlicense: mit\n")
    assert stated_license(tmp_path) == {}
