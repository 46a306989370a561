"""Finds the sentences of a text that are nearest to a claim or question.

Goes by shared runs of up to four characters, which needs no tokenizer and works in any script. Knows
nothing of judges.
"""

from typing import Any

from offline_summ.parts import sentences_of


class NearestPassages:
    """The sentences of one text, ready to be searched."""

    def __init__(self, text: str, *, count: int) -> None:
        """Weigh the character runs of each sentence.

        Args:
            text: the text.
            count: sentences to find.
        """
        self._count = count
        self._sentences = sentences_of(text)
        self._weights: Any = None

    def of(self, item: str) -> str | None:
        """Return the sentences nearest to `item` in their order in the text, or None if all would be.

        Near is the cosine of TF-IDF weights of character runs; of equally near sentences the first.
        """
        if len(self._sentences) <= self._count:
            return None
        if self._weights is None:
            from sklearn.feature_extraction.text import TfidfVectorizer

            vectorizer = TfidfVectorizer(analyzer="char", ngram_range=(1, 4), sublinear_tf=True)
            self._weights = vectorizer, vectorizer.fit_transform(self._sentences)
        vectorizer, weights = self._weights
        nearness = (weights @ vectorizer.transform([item]).T).toarray()[:, 0]
        order = sorted(range(len(self._sentences)), key=lambda i: -nearness[i])
        return " ".join(" ".join(self._sentences[i].split()) for i in sorted(order[: self._count]))
