"""The symptoms that the wizard offers first."""

from ddpwizard.app.diagnosis.case import FRONT_DOOR
from ddpwizard.app.diagnosis.symptoms import SYMPTOMS
from ddpwizard.knowledge.loader import read_knowledge


def test_every_symptom_is_an_answer_of_the_knowledge_base() -> None:
    answers = read_knowledge().questions[FRONT_DOOR].answers
    assert [symptom.answer for symptom in SYMPTOMS if symptom.answer not in answers] == []
