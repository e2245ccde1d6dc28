"""``make text-model``: train the text model from the texts of the knowledge base and write ``text_model.msgpack``.

Only this program needs scikit-learn. The wizard evaluates the stored weights itself (``knowledge/text_model.py``).
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from ddpwizard.knowledge.loader import read_knowledge
from ddpwizard.knowledge.text_model import IDF_STEPS, MODEL_FILE, TextModel
from ddpwizard.knowledge.training_texts import TrainingText, digest, training_texts
from ddpwizard.knowledge.words import synonymous_stems, terms_of
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

REGULARISATION = 20.0  # C of scikit-learn
LEAST_TEXTS = 2  # in which a term must occur
MOST_WEIGHTS = 90_000
STEPS = 20  # of a weight, on either side of zero; a weight that is kept counts at least one
FLATTENING = 0.75  # power of a weight of the regression, which trusts the words of its authors too much
SMOOTHING = 0.02  # of naive Bayes: added to what the texts of a label have of each term
ITERATIONS = 220
TOLERANCE = 5e-5  # of the mean gradient, which is 2e-3 at the start


def train(texts: list[TrainingText], same: Mapping[str, str], most_weights: int = MOST_WEIGHTS) -> TextModel:
    """Return the model of these texts: the mean of a logistic regression and naive Bayes.

    ``same``: stems that count as another one. The model has the weights that add most to texts: the largest by
    weight × inverse document frequency × root of the number of texts with the term.
    """

    def names_of(text: str) -> list[str]:
        return [term.name for term in terms_of(text, same)]

    vectoriser = TfidfVectorizer(sublinear_tf=True, min_df=LEAST_TEXTS).set_params(analyzer=names_of)
    features = vectoriser.fit_transform([text for _, text in texts])
    regression = LogisticRegression(C=REGULARISATION, max_iter=ITERATIONS, tol=TOLERANCE, class_weight="balanced")
    regression.fit(features, [label for label, _ in texts])
    weights = mean_of_both(regression.coef_, naive_bayes(features, [label for label, _ in texts]))
    added = np.abs(weights) * vectoriser.idf_ * np.sqrt(features.getnnz(axis=0))
    scale = float(np.abs(weights).max() / STEPS)
    steps = (np.sign(weights) * np.maximum(1, np.rint(np.abs(weights) / scale))).astype(int)
    steps[added < np.sort(added, axis=None)[-min(most_weights, weights.size)]] = 0
    kept = np.flatnonzero(steps.any(axis=0))
    names = vectoriser.get_feature_names_out()
    return TextModel(
        trained_from=digest(texts, same),
        same=dict(same),
        labels=[str(label) for label in regression.classes_],
        bias=[round(float(bias), 4) for bias in np.atleast_1d(regression.intercept_)],
        scale=scale,
        terms="\n".join(names[kept]),
        idf=bytes(min(255, round(idf * IDF_STEPS)) for idf in vectoriser.idf_[kept]),
        counts=bytes(int(count) for count in (steps[:, kept] != 0).sum(axis=0)),
        columns=b"".join(bytes(np.flatnonzero(steps[:, place]).tolist()) for place in kept),
        weights=b"".join(bytes((steps[steps[:, place] != 0, place] + 127).tolist()) for place in kept),
    )


def naive_bayes(features: Any, labels: list[str]) -> Any:
    """Return the logarithm of the share of each term in the texts of each label, labels in alphabetical order."""
    texts_of_label = np.array([[label == each for label in labels] for each in sorted(set(labels))], dtype=float)
    sums = features.T.dot(texts_of_label.T).T
    sums *= sums.sum(axis=1).mean() / sums.sum(axis=1, keepdims=True)
    return np.log((sums + SMOOTHING) / (sums + SMOOTHING).sum(axis=1, keepdims=True))


def mean_of_both(regression: Any, bayes: Any) -> Any:
    """Return the sum of two weight matrices, centred and scaled to the same spread; the first one is flattened.

    The sum has the spread of the regression.
    """
    regression = regression - regression.mean(axis=0)  # the probabilities stay the same
    flattened = np.sign(regression) * np.abs(regression) ** FLATTENING
    return regression.std() * (flattened / flattened.std() + (bayes - bayes.mean(axis=0)) / bayes.std())


def main(target: Path) -> int:
    """Train and write the model; print its size."""
    knowledge = read_knowledge()
    texts = training_texts(knowledge)
    model = train(texts, synonymous_stems(knowledge.synonyms))
    content = msgspec.msgpack.encode(model)
    target.write_bytes(content)
    print(f"{len(texts)} texts, {len(model.labels)} labels, {model.terms.count(chr(10)) + 1} terms,", end=" ")
    print(f"{len(model.weights)} weights, {len(content)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(MODEL_FILE))
