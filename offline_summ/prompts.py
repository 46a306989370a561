"""Loads the prompt files, renders them strictly, hashes them, and chooses the language.

`prompts/<language>/<name>.jinja` holds one call each, in the blocks `system` and `user`; `reason.jinja` holds
the text of a composed reason in the block `text`. A folder of one's own may replace some or all of them.
Everything is checked when it is loaded, before a judge is. Knows nothing of engines and replies.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import DictLoader, StrictUndefined, TemplateError, TemplateSyntaxError, meta
from jinja2.sandbox import ImmutableSandboxedEnvironment

from offline_summ.errors import UsageError
from offline_summ.resources import data_path


@dataclass(frozen=True)
class _Slot:
    blocks: frozenset[str]
    variables: frozenset[str]
    needed: frozenset[str]


_REASON = frozenset(
    {"score", "scale", "alignment", "coverage", "deciding_axis", "unsupported", "unanswered", "quoted"}
)
_CALL = frozenset({"system", "user"})
_SLOTS: Mapping[str, _Slot] = {
    "joint_judgement": _Slot(
        _CALL,
        frozenset({"source", "summary", "axes", "max_claims", "max_questions"}),
        frozenset({"source", "summary"}),
    ),
    "joint_coverage": _Slot(_CALL, frozenset({"summary", "questions"}), frozenset({"summary", "questions"})),
    "joint_reason": _Slot(_CALL, _REASON - {"quoted"}, frozenset({"score"})),
    "reason": _Slot(frozenset({"text"}), _REASON, frozenset({"score"})),
}

# Texts come from strangers. These names stand between angle brackets in the prompts.
_TAG = re.compile(r"</?\s*(\w[\w-]*)\s*>")
_KANA = re.compile(r"[\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f]")
_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f]")
_LETTER = re.compile(r"[^\W\d_]")
_KANA_SHARE = 0.05
_HAN_SHARE = 0.3


@dataclass(frozen=True)
class Prompt:
    """One rendered call."""

    system: str
    user: str


class PromptSet:
    """The prompts of one language.

    Attributes:
        language: name of its folder.
        sha256: digest over names and contents of its files, in name order.
    """

    def __init__(self, language: str, files: Mapping[str, str], origins: Mapping[str, str]) -> None:
        """Parse and check the files.

        Args:
            language: name of the folder.
            files: name without ending to content.
            origins: name without ending to the path shown in errors.

        Raises:
            UsageError: a file is missing, does not parse, lacks a block, or uses or lacks a variable.
        """
        self.language = language
        digest = hashlib.sha256()
        for name in sorted(files):
            for part in (name, files[name]):
                digest.update(hashlib.sha256(part.encode()).digest())
        self.sha256 = digest.hexdigest()
        self._environment = ImmutableSandboxedEnvironment(
            loader=DictLoader(dict(files)),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            autoescape=False,
        )
        for name, slot in _SLOTS.items():
            if name not in files:
                raise UsageError(
                    f"Prompts for language {language!r} lack {name + '.jinja'!r}.",
                    "Add the file, or choose another language.",
                )
            self._check(name, slot, files[name], origins.get(name, name))
        tags = {tag.lower() for content in files.values() for tag in _TAG.findall(content)}
        self._tags = re.compile(
            rf"<(?=\s*/?\s*(?:{'|'.join(map(re.escape, sorted(tags)))})\s*/?\s*>)" if tags else r"(?!)",
            re.IGNORECASE,
        )

    def _check(self, name: str, slot: _Slot, content: str, origin: str) -> None:
        fix = "Compare it with the prompt that is shipped."
        try:
            used = meta.find_undeclared_variables(self._environment.parse(content))
            blocks = set(self._environment.get_template(name).blocks)
        except TemplateError as error:
            line = f", line {error.lineno}" if isinstance(error, TemplateSyntaxError) else ""
            raise UsageError(f"Prompt {origin!r}{line} does not parse: {error.message}.", fix) from error
        if blocks != slot.blocks:
            raise UsageError(
                f"Prompt {origin!r} must have the blocks {sorted(slot.blocks)}, not {sorted(blocks)}.", fix
            )
        if unknown := sorted(used - slot.variables):
            raise UsageError(
                f"Prompt {origin!r} uses {unknown[0]!r}; it may use {', '.join(sorted(slot.variables))}.", fix
            )
        if missing := sorted(slot.needed - used):
            raise UsageError(f"Prompt {origin!r} does not use {missing[0]!r}.", fix)

    def render(self, name: str, **variables: Any) -> Prompt:
        """Render one call.

        Raises:
            UsageError: the template fails with these variables.
        """
        return Prompt(
            system=self._render_block(name, "system", variables).strip(),
            user=self._render_block(name, "user", variables).strip(),
        )

    def render_reason(self, **variables: Any) -> str:
        """Render the composed reason as one line; line breaks of the template are dropped."""
        return "".join(self._render_block("reason", "text", variables).splitlines()).strip()

    def _render_block(self, name: str, block: str, variables: Mapping[str, Any]) -> str:
        template = self._environment.get_template(name)
        try:
            return "".join(template.blocks[block](template.new_context(dict(variables))))
        # A template of the user's own may fail in any way an expression can.
        except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise UsageError(
                f"Prompt {name!r} of language {self.language!r} fails: {type(error).__name__}.",
                "Compare it with the prompt that is shipped.",
            ) from None

    def defuse(self, text: str) -> str:
        """Return `text` with the opening bracket of every section marker of these prompts replaced.

        `</source>` becomes `‹/source>`: the same number of characters, the same to a reader, and no marker.
        """
        return self._tags.sub("‹", text)


@dataclass(frozen=True)
class PromptLibrary:
    """The prompts of every language."""

    languages: Mapping[str, PromptSet]

    def choose(self, language: str | None, source: str) -> PromptSet:
        """Return the prompts of `language`; if it is None, of the language that the source is written in.

        Raises:
            UsageError: there are no prompts for `language`.
        """
        wanted = language or language_of(source)
        if wanted not in self.languages:
            raise UsageError(
                f"There are no prompts for language {wanted!r}.",
                f"Choose one of {', '.join(sorted(self.languages))}, or add a folder with `--prompts`.",
            )
        return self.languages[wanted]


def load_prompts(folder: Path | None = None) -> PromptLibrary:
    """Load the shipped prompts, and over them those of `folder`.

    Args:
        folder: a folder laid out as the shipped one. Its files replace those of the same language and name;
            a language that is not shipped must be complete.

    Raises:
        UsageError: the folder or a file in it is not a prompt, or a prompt is faulty.
    """
    files, origins = _read(data_path("prompts"))
    if folder is not None:
        if not folder.is_dir():
            raise UsageError(f"Prompts folder {str(folder)!r} does not exist.", "Give an existing folder.")
        own, own_origins = _read(folder)
        if not own:
            raise UsageError(
                f"Prompts folder {str(folder)!r} holds no prompts.",
                "Lay it out as <language>/<name>.jinja.",
            )
        for language in own:
            files.setdefault(language, {}).update(own[language])
            origins.setdefault(language, {}).update(own_origins[language])
    return PromptLibrary(
        {language: PromptSet(language, files[language], origins[language]) for language in sorted(files)}
    )


def _read(root: Path) -> tuple[dict[str, dict[str, str]], dict[str, dict[str, str]]]:
    files: dict[str, dict[str, str]] = {}
    origins: dict[str, dict[str, str]] = {}
    for path in sorted(root.rglob("*")):
        if path.is_dir() or path.name.startswith("."):
            continue
        relative = path.relative_to(root)
        if len(relative.parts) != 2 or path.suffix != ".jinja" or path.stem not in _SLOTS:
            raise UsageError(
                f"{str(path)!r} is not a prompt.",
                f"Lay the folder out as <language>/<name>.jinja, with the names {', '.join(_SLOTS)}.",
            )
        try:
            content = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"Prompt {str(path)!r} cannot be read: {type(error).__name__}.", "Save it as UTF-8 text."
            ) from error
        files.setdefault(relative.parts[0], {})[path.stem] = content
        origins.setdefault(relative.parts[0], {})[path.stem] = str(path)
    return files, origins


def language_of(text: str) -> str:
    """Return the shipped prompt language nearest to `text`: "ja", "zh", or "en" for everything else.

    Goes by script alone: kana means Japanese, Han characters without kana mean Chinese. The judge is told to
    write in the language of the text in any case.
    """
    letters = len(_LETTER.findall(text))
    kana, han = len(_KANA.findall(text)), len(_HAN.findall(text))
    if letters and kana + han > _HAN_SHARE * letters:
        return "ja" if kana > _KANA_SHARE * (kana + han) else "zh"
    return "en"
