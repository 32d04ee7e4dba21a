"""The answer stands between two tags, as in <answer>...</answer>."""

from typing import Literal

from pydantic import Field

from posttrain.learning.rewards.extractors.base import Extractor


class TagAnswer(Extractor):
    """Take what stands between the last pair of tags, such as <answer> and </answer>."""

    SOURCE = "DeepSeek-R1, arXiv:2501.12948, table 1: <think> and <answer>"

    kind: Literal["tag"] = "tag"
    tag: str = Field(default="answer", pattern=r"^[A-Za-z][\w.:-]*$")
    """Name of the tag, without its brackets."""

    def extract(self, text: str) -> str | None:
        """Look for the last closing tag, and the opening one before it."""
        before, closing, _ = text.rpartition(f"</{self.tag}>")
        _, opening, inside = before.rpartition(f"<{self.tag}>")
        return inside.strip() or None if closing and opening else None

    def reference(self, answer: str) -> str:
        """Take the tagged part of a worked solution, where it has one."""
        return self.extract(answer) or super().reference(answer)

    def place(self) -> str:
        """Name the tags."""
        return f"between <{self.tag}> and </{self.tag}>"
