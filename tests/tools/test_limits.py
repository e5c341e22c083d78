"""What limits are written in: the keys of resources (rates are proved with their guard)."""

import pytest

from saga_engine.tools.limits import ResourceParamMissing, resource_keys, template_fields


@pytest.mark.parametrize(
    ("params", "defaults", "key"),
    [
        ({"a": "x", "b": 1}, {}, "x:1"),
        ({"a": "{b}", "b": None}, {}, "{b}:null"),
        ({"a": "x"}, {"b": 2}, "x:2"),
        ({"a": {"z": 1, "y": 2}, "b": [True]}, {}, '{"y": 2, "z": 1}:[true]'),
    ],
)
def test_a_template_is_filled_with_values_that_stay_data(params, defaults, key):
    """Values are never read as templates, and defaults stand in for what a plan leaves out."""
    assert resource_keys("{a}:{b}", params, defaults) == [key]


def test_several_templates_give_several_keys():
    """A list of templates is a key for each."""
    assert resource_keys(["user:{u}", "shop"], {"u": 1}, {}) == ["user:1", "shop"]
    assert resource_keys(("shop",), {}, {}) == ["shop"]


def test_a_function_says_none_one_or_several():
    """Whatever a function of the params says counts; what is no text is an error."""
    for said, keys in [(None, []), ("a", ["a"]), (["a", "b"], ["a", "b"]), (("a",), ["a"]), ([], [])]:
        assert resource_keys(lambda params, said=said: said, {}, {}) == keys
    for said in (7, ["a", None], {"a"}, b"a"):
        with pytest.raises(TypeError, match="not a text"):
            resource_keys(lambda params, said=said: said, {}, {})


def test_a_param_without_a_value_is_told():
    """A template never turns into a key that is shared by accident."""
    with pytest.raises(ResourceParamMissing, match="'b'"):
        resource_keys("{a}:{b}", {"a": 1}, {})


@pytest.mark.parametrize("template", ["{x.__class__}", "{x[0]}", "{x!r}", "{x:>9}", "{}", "{0}", "{"])
def test_a_template_names_params_and_nothing_else(template):
    """Attributes, indexes, formats and conversions would let a value decide what code runs."""
    with pytest.raises(ValueError, match=r"parameter name|expected|Single"):
        template_fields(template)
