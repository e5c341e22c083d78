"""Errors travel."""

import inspect
import pickle

import pytest

from saga_engine import errors
from saga_engine.errors import PlanInvalid, Problem, SagaError

KINDS = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, SagaError) and kind is not PlanInvalid
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_reaches_another_process_whole(kind) -> None:
    """A pool of processes pickles what a job raises: an error that could not be revived would break the pool."""
    try:
        error = kind("it is so", hint="do this", saga_id="s1")
    except TypeError:
        pytest.skip("made from other parts")
    revived = pickle.loads(pickle.dumps(error))
    assert type(revived) is kind
    assert (str(revived), revived.to_dict()) == (str(error), error.to_dict())


def test_a_refused_plan_travels_with_its_problems() -> None:
    """The same for the error that is made from a list."""
    error = PlanInvalid([Problem("a", "$.steps[0]", "it is wrong", "mend it")])
    revived = pickle.loads(pickle.dumps(error))
    assert (revived.problems, str(revived)) == (error.problems, str(error))
