"""The symptoms that the wizard offers first."""

from ddpwizard.app.diagnosis.case import FRONT_DOOR
from ddpwizard.app.diagnosis.symptoms import SYMPTOMS, symptom_of
from helpers.built_in_knowledge import built_in_knowledge


def test_every_symptom_is_an_answer_of_the_knowledge_base() -> None:
    questions = built_in_knowledge().questions
    given = [(question, answer) for symptom in SYMPTOMS for question, answer in symptom.answers.items()]
    assert [pair for pair in given if pair[1] not in questions[pair[0]].answers] == []
    assert all(FRONT_DOOR in symptom.answers for symptom in SYMPTOMS)


def test_the_most_specific_symptom_names_a_case() -> None:
    for symptom in SYMPTOMS:
        assert symptom_of({**symptom.answers, "same-place": "differs"}) is symptom
    assert symptom_of({}) is None
