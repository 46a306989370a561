"""A judge scripted by a function: for tests of code that uses this package, as well as for its own.

Decodes nothing, constrains nothing, needs no weights, and remembers every request it received.
"""

import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from offline_summ.engines.base import Capacity, Completion, EngineRecord, Reply, Request
from offline_summ.grammar import NO, YES, question_ids

_MIDDLE = 0.5

Script = Callable[[Request], str | Completion | Awaitable[str | Completion]]


class ScriptedEngine:
    """An engine whose replies come from a function.

    Args:
        script: called with each request; returns the text of the reply, or a whole completion; may be
            async. What it raises reaches the caller, as an engine's error does.
        judge: name in the record of a run.
        context_length: what the engine says of itself; it enforces nothing.
        capacity: what the engine says it works on at once.

    Attributes:
        requests: every request received, in order.
    """

    def __init__(
        self,
        script: Script,
        *,
        judge: str = "scripted",
        context_length: int | None = None,
        capacity: Capacity | None = None,
    ) -> None:
        """Keep the script."""
        self._script = script
        self._capacity = capacity or Capacity()
        self._record = EngineRecord(judge=judge, engine="scripted")
        self._context_length = context_length
        self.requests: list[Request] = []

    @classmethod
    def judging(
        cls,
        claims: Mapping[str, bool | float] | Iterable[tuple[str, bool | float]],
        questions: Mapping[str, bool | float],
        *,
        context_length: int | None = None,
        capacity: Capacity | None = None,
    ) -> "ScriptedEngine":
        """Return a judge that finds these claims and questions in any text, with these verdicts.

        Args:
            claims: claim to verdict, or to the probability that it is supported.
            questions: question to verdict, or to the probability that it is answered by the summary. By the
                source, every question is answered.
            context_length, capacity: as at construction.
        """
        found = list(claims.items() if isinstance(claims, Mapping) else claims)

        def script(request: Request) -> str | Completion:
            if request.verdict_words:
                known = {**dict(found), **questions} if request.step != "questions" else {}
                return _decision(request, known)
            if request.step == "claims":
                return _json({"claims": [claim for claim, _ in found]})
            if request.step == "questions":
                return _json({"questions": list(questions)})
            if request.reply.name.startswith("explanation"):
                return _explanation(request)
            if request.step == "source_judgement":
                fields = request.reply.name.split("-")[1]
                return judgement_reply(
                    found if fields != "coverage" else None, questions if fields != "alignment" else None
                )
            if request.step == "coverage":
                return coverage_reply(questions.values())
            return json.dumps({"reason": "Scripted."})

        return cls(script, context_length=context_length, capacity=capacity)

    @property
    def record(self) -> EngineRecord:
        """What this engine adds to the record of a run."""
        return self._record

    @property
    def context_length(self) -> int | None:
        """The context length given at construction."""
        return self._context_length

    @property
    def bounds_texts(self) -> bool:
        """No: nothing is constrained."""
        return False

    @property
    def capacity(self) -> Capacity:
        """The capacity given at construction."""
        return self._capacity

    async def start(self) -> None:
        """Do nothing: there is nothing to load."""

    async def warm_up(self, replies: Sequence[Reply]) -> None:
        """Do nothing: there is nothing to compile."""

    async def generate(self, request: Request) -> Completion:
        """Return what the script says."""
        self.requests.append(request)
        said = self._script(request)
        reply = await said if inspect.isawaitable(said) else said
        return reply if isinstance(reply, Completion) else Completion(text=reply)

    async def close(self) -> None:
        """Do nothing: there is nothing to stop."""

    def kill(self) -> None:
        """Do nothing: there is nothing to end."""


def judgement_reply(
    claims: Iterable[tuple[str, bool | float]] | None,
    questions: Iterable[str] | None,
    *,
    reason: str = "Scripted.",
) -> str:
    """Return the reply of step 1 as a judge writes it; None leaves an axis out."""
    reply: dict[str, object] = {}
    if claims is not None:
        reply["claims"] = [
            {"claim": claim, "supported": _word(verdict), "reason": reason} for claim, verdict in claims
        ]
    if questions is not None:
        reply["questions"] = list(questions)
    return _json(reply)


def coverage_reply(verdicts: Iterable[bool | float], *, reason: str = "Scripted.") -> str:
    """Return the reply of step 2 as a judge writes it: one verdict a question, in the order asked."""
    answers = [{"answered": _word(verdict), "reason": reason} for verdict in verdicts]
    named = dict(zip(question_ids(len(answers)), answers, strict=True))
    return _json(named)


def _word(verdict: bool | float) -> str:
    return YES if verdict >= _MIDDLE else NO


def _json(reply: object) -> str:
    return json.dumps(reply, ensure_ascii=False, separators=(",", ":"))


def _decision(request: Request, known: Mapping[str, bool | float]) -> Completion:
    """Decide the known text that the request asks about; what is not known is a sure yes.

    Texts come before the item that is asked about, so that it is the known text that ends last, and of those
    that end there the longest.
    """
    asked = request.messages[-1].content.replace("<", "‹")  # as prompts defuse it

    def place(text: str) -> tuple[int, int]:
        shown = " ".join(text.split()).replace("<", "‹")
        start = asked.rfind(shown)
        return (start + len(shown), -start) if start >= 0 else (-1, 0)

    best = max(known, key=place, default=None)
    probability = float(known[best]) if best is not None and place(best)[0] >= 0 else 1.0
    yes, *others = request.verdict_words
    rest = (1 - probability) / len(others)
    return Completion(
        text=yes if probability >= _MIDDLE else others[0],
        probabilities={yes: probability, **dict.fromkeys(others, rest)},
    )


def _explanation(request: Request) -> str:
    """Give a reason that begins as it must, and quote nothing that is in any text."""
    shown = request.messages[-1].content.rsplit("\n", 1)[-1]
    form = json.loads(shown)
    return _json({**form, "reason": form["reason"].removesuffix("...") + "scripted."})
