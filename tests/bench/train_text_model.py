"""``make text-model``: train the text model from the texts of the knowledge base and write ``text_model.msgpack``.

Only this program needs scikit-learn. The wizard evaluates the stored weights itself (``knowledge/text_model.py``).
"""

import sys
from pathlib import Path

import msgspec
import numpy as np
from ddpwizard.knowledge.loader import read_knowledge
from ddpwizard.knowledge.text_model import IDF_STEPS, MODEL_FILE, TextModel
from ddpwizard.knowledge.training_texts import TrainingText, digest, training_texts
from ddpwizard.knowledge.words import terms_of
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

REGULARISATION = 20.0  # C of scikit-learn
LEAST_TEXTS = 2  # in which a term must occur
MOST_WEIGHTS = 60_000
STEPS = 10  # of a weight, on either side of zero; a weight that is kept counts at least one
ITERATIONS = 220
TOLERANCE = 5e-5  # of the mean gradient, which is 2e-3 at the start


def term_names(text: str) -> list[str]:
    """Return the names of the terms of a text."""
    return [term.name for term in terms_of(text)]


def train(texts: list[TrainingText], most_weights: int = MOST_WEIGHTS) -> TextModel:
    """Return the model of these texts, with the weights that are largest."""
    vectoriser = TfidfVectorizer(sublinear_tf=True, min_df=LEAST_TEXTS).set_params(analyzer=term_names)
    features = vectoriser.fit_transform([text for _, text in texts])
    regression = LogisticRegression(C=REGULARISATION, max_iter=ITERATIONS, tol=TOLERANCE, class_weight="balanced")
    regression.fit(features, [label for label, _ in texts])
    weights = regression.coef_ - regression.coef_.mean(axis=0)  # the probabilities stay the same
    smallest = np.sort(np.abs(weights), axis=None)[-min(most_weights, weights.size)]
    scale = float(np.abs(weights).max() / STEPS)
    steps = (np.sign(weights) * np.maximum(1, np.rint(np.abs(weights) / scale))).astype(int)
    steps[np.abs(weights) < smallest] = 0
    kept = np.flatnonzero(steps.any(axis=0))
    names = vectoriser.get_feature_names_out()
    return TextModel(
        trained_from=digest(texts),
        labels=[str(label) for label in regression.classes_],
        bias=[round(float(bias), 4) for bias in np.atleast_1d(regression.intercept_)],
        scale=scale,
        terms="\n".join(names[kept]),
        idf=bytes(min(255, round(idf * IDF_STEPS)) for idf in vectoriser.idf_[kept]),
        counts=bytes(int(count) for count in (steps[:, kept] != 0).sum(axis=0)),
        columns=b"".join(bytes(np.flatnonzero(steps[:, place]).tolist()) for place in kept),
        weights=b"".join(bytes((steps[steps[:, place] != 0, place] + 127).tolist()) for place in kept),
    )


def main(target: Path) -> int:
    """Train and write the model; print its size."""
    texts = training_texts(read_knowledge())
    model = train(texts)
    content = msgspec.msgpack.encode(model)
    target.write_bytes(content)
    print(f"{len(texts)} texts, {len(model.labels)} labels, {model.terms.count(chr(10)) + 1} terms,", end=" ")
    print(f"{len(model.weights)} weights, {len(content)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(MODEL_FILE))
