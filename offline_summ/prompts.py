"""Loads the prompt files, renders them strictly, hashes them, and chooses the language.

`prompts/<language>/<name>.jinja` holds one call each, in the blocks `system` and `user`. `itemized.jinja`
holds all calls of that protocol, one block each, after blocks `system` and `text` that they share word for
word, so that a prefix cache computes them once. `reason.jinja` holds the text of a composed reason in the
block `text`. A folder of one's own may replace some or all of them.
Everything is checked when it is loaded, before a judge is. Knows nothing of engines and replies.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import DictLoader, StrictUndefined, TemplateError, TemplateSyntaxError, meta, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from offline_summ.errors import UsageError
from offline_summ.resources import data_path


@dataclass(frozen=True)
class _Block:
    variables: frozenset[str]
    needed: frozenset[str]


def _block(needed: str = "", also: str = "") -> _Block:
    return _Block(frozenset(f"{needed} {also}".split()), frozenset(needed.split()))


_FIGURES = "scale alignment coverage deciding_axis unsupported unanswered"
# File to block to the variables it must and may use. `claim` and `question` may have further wordings.
_SLOTS: Mapping[str, Mapping[str, _Block]] = {
    "joint_judgement": {
        "system": _block(),
        "user": _block("source summary", "axes max_claims max_questions"),
    },
    "joint_coverage": {"system": _block(), "user": _block("summary questions")},
    "itemized": {
        "system": _block(),
        "text": _block("text"),
        "claims": _block("", "max_claims"),
        "questions": _block("", "max_questions part"),
        "claim": _block("claim", "passages"),
        "question": _block("question", "passages"),
        "claim_reason": _block("claim opening", "supported"),
        "question_reason": _block("question opening", "answered"),
        "claim_words": _block(),
        "question_words": _block(),
        "supported": _block(),
        "unsupported": _block(),
        "answered": _block(),
        "unanswered": _block(),
    },
    "worded_reason": {"system": _block("", f"score {_FIGURES}"), "user": _block("score", _FIGURES)},
    "reason": {"text": _block("score", f"{_FIGURES} quoted")},
}
_FURTHER_WORDING = re.compile(r"(claim|question)_[2-9]")
_PHRASES = frozenset({"claim_words", "question_words", "supported", "unsupported", "answered", "unanswered"})
_LONGEST_PHRASE = 80
_PHRASE = re.compile(rf'[^\W_](?:[^"\\]{{0,{_LONGEST_PHRASE - 2}}}[^"\\\s])?')
_SAMPLE = {
    "text": "It rained.",
    "passages": "It rained.",
    "claim": "It rained.",
    "question": "Did it rain?",
    "opening": "So it is:",
    "max_claims": 4,
    "max_questions": 4,
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
        self._files = dict(files)
        self.sha256 = self.digest(*files)
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

        for task in ("claim", "question"):
            words = self.verdict_words(task)
            if len(words) < 2 or not all(words) or len({word[:1].casefold() for word in words}) < len(words):
                raise UsageError(
                    f"Prompt {origins.get('itemized')!r} offers {', '.join(words)!r} to decide a {task}.",
                    "Give two or more words, separated by commas, that differ in their first character.",
                )

    def _check(self, name: str, slot: Mapping[str, _Block], content: str, origin: str) -> None:
        fix = "Compare it with the prompt that is shipped."
        try:
            parsed = self._environment.parse(content)
            self._environment.get_template(name)
        except TemplateError as error:
            line = f", line {error.lineno}" if isinstance(error, TemplateSyntaxError) else ""
            raise UsageError(f"Prompt {origin!r}{line} does not parse: {error.message}.", fix) from error
        blocks = {block.name: block for block in parsed.find_all(nodes.Block)}
        further = {b for b in blocks if _FURTHER_WORDING.fullmatch(b) and b[:-2] in slot}
        if blocks.keys() - further != slot.keys():
            raise UsageError(
                f"Prompt {origin!r} must have the blocks {sorted(slot)}, not {sorted(blocks)}.", fix
            )
        for block, node in blocks.items():
            allowed = slot[block[:-2] if block in further else block]
            body = nodes.Template(node.body, lineno=node.lineno).set_environment(self._environment)
            used = meta.find_undeclared_variables(body)  # type: ignore[arg-type]
            place = f"Prompt {origin!r}" if len(slot) <= 2 else f"Prompt {origin!r}, block {block!r},"
            if unknown := sorted(used - allowed.variables):
                may = (
                    f"it may use {', '.join(sorted(allowed.variables))}"
                    if allowed.variables
                    else "it may use none"
                )
                raise UsageError(f"{place} uses {unknown[0]!r}; {may}.", fix)
            if missing := sorted(allowed.needed - used):
                raise UsageError(f"{place} does not use {missing[0]!r}.", fix)
        for block in sorted(_PHRASES & slot.keys()):
            phrase = self._render_block(name, block, {}).strip()
            if not _PHRASE.fullmatch(phrase) or not phrase.isprintable() or "  " in phrase:
                raise UsageError(
                    f"Prompt {origin!r}, block {block!r}, holds {phrase!r}.",
                    "Give words on one line with single spaces, without quotation marks, that begin with a "
                    f"letter; {_LONGEST_PHRASE} characters at most.",
                )
        if name == "itemized":
            for block in sorted(blocks.keys() - _PHRASES):
                self._try(block, origin, fix)

    def _try(self, block: str, origin: str, fix: str) -> None:
        """Render a block of `itemized` with made-up texts, each way it can go."""
        for yes in (True, False):
            sample = {**_SAMPLE, "supported": yes, "answered": yes, "part": _SAMPLE["text"] if yes else None}
            if not self._render_block("itemized", block, sample).strip() and block != "system":
                raise UsageError(f"Prompt {origin!r}, block {block!r}, is empty.", fix)

    def digest(self, *names: str) -> str:
        """Return the digest over names and contents of some of the files, in name order."""
        whole = hashlib.sha256()
        for name in sorted(names):
            for part in (name, self._files[name]):
                whole.update(hashlib.sha256(part.encode()).digest())
        return whole.hexdigest()

    def wordings(self, task: str) -> tuple[str, ...]:
        """Return the blocks of `itemized` that word a task: the task itself, and `task_2` and so on."""
        blocks = self._environment.get_template("itemized").blocks
        return tuple(
            sorted(b for b in blocks if b == task or (b.startswith(task) and _FURTHER_WORDING.fullmatch(b)))
        )

    def phrase(self, block: str) -> str:
        """Return a fixed phrase of `itemized`, such as the opening of a reason."""
        return self._render_block("itemized", block, {}).strip()

    def verdict_words(self, task: str) -> tuple[str, ...]:
        """Return the words among which a judge decides a task; the first one is the positive verdict."""
        return tuple(word.strip() for word in self.phrase(f"{task}_words").split(","))

    def render_task(self, task: str, text: str, **variables: Any) -> Prompt:
        """Render a call of `itemized`: the shared system prompt and text, and one task.

        Args:
            task: name of the block.
            text: the long text, defused; all tasks on one text share everything up to its end.
            variables: what the block uses.

        Raises:
            UsageError: the template fails with these variables.
        """
        shared = self._render_block("itemized", "text", {"text": text}).strip()
        asked = self._render_block("itemized", task, variables).strip()
        return Prompt(
            system=self._render_block("itemized", "system", {}).strip(), user=f"{shared}\n\n{asked}"
        )

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
        except (
            TemplateError,
            ArithmeticError,
            AttributeError,
            LookupError,
            TypeError,
            ValueError,
        ) as error:
            # Only the type: the text of the error may quote a document.
            raise UsageError(
                f"Prompt {name!r} of language {self.language!r} fails in block {block!r}: "
                f"{type(error).__name__}.",
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
    if text.isascii():
        return "en"
    letters = len(_LETTER.findall(text))
    kana, han = len(_KANA.findall(text)), len(_HAN.findall(text))
    if letters and kana + han > _HAN_SHARE * letters:
        return "ja" if kana > _KANA_SHARE * (kana + han) else "zh"
    return "en"
