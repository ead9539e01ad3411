"""Configuration files: what is read, and how mistakes are told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otelkit.errors import ConfigError
from otelkit.record.parameters.files import flatten, parse

VALUES = {"max_tokens": 256, "temperature": 0.7, "stop": ["a", "b"], "safety": {"level": "high"}}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "p.json",
            '{"max_tokens": 256,\n "temperature": 0.7,\n "stop": ["a", "b"],\n "safety": {"level": "high"}}',
        ),
        ("p.yaml", "max_tokens: 256\ntemperature: 0.7\nstop: [a, b]\nsafety: {level: high}\n"),
        ("p.toml", 'max_tokens = 256\ntemperature = 0.7\nstop = ["a", "b"]\n[safety]\nlevel = "high"\n'),
    ],
)
def test_the_three_formats_say_the_same_with_lines(name: str, text: str) -> None:
    """If this fails, a format can't be used, or its mistakes are told at the wrong line."""
    document = parse(Path(name), b"\xef\xbb\xbf" + text.encode())
    assert document.values == VALUES
    assert [document.lines[key] for key in VALUES] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("p.json", '{"a": 1,\n "b": }', "p.json:2: is not JSON: Expecting value"),
        ("p.json", '{"a": 1,\n "a": 2}', "p.json:2: a: is there twice; keep one"),
        ("p.json", '{"a":\n NaN}', "p.json:2: NaN is no JSON number"),
        ("p.json", "[1]", "p.json: is list, not a mapping; write one 'parameter: value' a line"),
        ("p.json", "[" * 100_000, "p.json: is nested too deep; flatten it"),
        ("p.json", " \n", "p.json: is empty; write {} (JSON, YAML) or a comment (TOML) to set nothing"),
        ("p.toml", "a = 1\nb = \n", "p.toml:2: is not TOML: Invalid value"),
        ("p.toml", "a = 1\na = 2\n", "p.toml:2: is not TOML: Cannot overwrite a value"),
        ("p.yaml", "a: 1\nb: [1\n", "p.yaml:3: is not YAML: expected ',' or ']', but got '<stream end>'"),
        ("p.yaml", "a: 1\nb: 2\na: 3\n", "p.yaml:3: a: is there twice, first in line 1; keep one"),
        ("p.yaml", "a: 1\n5: 2\n", "p.yaml:2: the key '5' is no text; put it in quotes"),
        ("p.yaml", "a: !!python/object/apply:os.system [ls]", "p.yaml:1: is not YAML: could not determine"),
        ("p.yaml", "a: 1\n---\nb: 2\n", "p.yaml:2: is not YAML: but found another document"),
        ("p.yaml", "a: &x\n  b: *x\n", "p.yaml:1: contains itself; write the value out"),
        ("p.yaml", "just text", "p.yaml: is str, not a mapping; write one 'parameter: value' a line"),
        ("p.ini", "a=1", "p.ini: its suffix '.ini' is none of .json, .toml, .yaml, .yml; rename it"),
    ],
)
def test_a_mistake_is_told_with_file_line_and_key(name: str, text: str, problem: str) -> None:
    """If this fails, an operator has to search for what is wrong."""
    with pytest.raises(ConfigError) as caught:
        parse(Path(name), text.encode())
    assert caught.value.problems[0].startswith(problem)


@pytest.mark.parametrize("value", ["2026-99-99", "[1, 2026-99-99]", "{deep: 2026-99-99}"])
def test_a_value_that_yaml_makes_no_date_of_is_told_with_line_and_key(value: str) -> None:
    """If this fails, a typo in a file of a hundred lines is told without saying where."""
    with pytest.raises(ConfigError) as raised:
        parse(Path("chat.yaml"), f"max_tokens: 1\nwhen: {value}\n".encode())
    (problem,) = raised.value.problems
    assert problem.startswith("chat.yaml:2: when") and "2026-99-99" in problem


def test_bytes_that_are_no_text_and_files_that_are_too_large_are_refused() -> None:
    """If this fails, a wrong file crashes the reload or fills the memory."""
    with pytest.raises(ConfigError, match=r"p\.yaml:2: is not UTF-8"):
        parse(Path("p.yaml"), b"a: 1\nb: \xff\n")
    with pytest.raises(ConfigError, match="1000001 bytes; parameters take at most 1000000"):
        parse(Path("p.yaml"), b"#" * 1_000_001)


def test_a_few_lines_of_aliases_do_not_fill_the_memory() -> None:
    """If this fails, a "billion laughs" file takes the service down."""
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    with pytest.raises(ConfigError, match=r"p\.yaml:\d+: stands for more than 100000 parts"):
        parse(Path("p.yaml"), "\n".join(lines).encode())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("p.yaml", "server: {port: 1}\nllm:\n  defaults:\n    max_tokens: 8\n    top_p: 1\n"),
        ("p.toml", "[server]\nport = 1\n\n[llm.defaults]\nmax_tokens = 8\ntop_p = 1\n"),
        ("p.json", '{"server": {"port": 1},\n"llm": {"defaults":\n\n{"max_tokens": 8,\n"top_p": 1}}}'),
    ],
)
def test_a_section_of_a_larger_file_can_be_used(name: str, text: str) -> None:
    """If this fails, services have to keep model parameters in a file of their own."""
    document = parse(Path(name), text.encode(), "llm.defaults")
    assert document.values == {"max_tokens": 8, "top_p": 1}
    assert document.lines["top_p"] - document.lines["max_tokens"] == 1
    with pytest.raises(ConfigError, match=r"llm\.other: is missing"):
        parse(Path(name), text.encode(), "llm.other")


def test_registered_names_with_dots_are_found_in_nested_mappings() -> None:
    """If this fails, ``limits: {rate: 5}`` does not set ``limits.rate``."""
    document = parse(Path("p.yaml"), b"limits:\n  rate: 5\n  burst: 6\nsafety:\n  level: high\n")
    flat = flatten(document, {"limits.rate", "top_p"})
    assert flat.values == {"limits.rate": 5, "limits.burst": 6, "safety": {"level": "high"}}
    assert flat.lines["limits.burst"] == 3


@settings(max_examples=300, deadline=None)
@given(
    suffix=st.sampled_from([".json", ".toml", ".yaml"]),
    content=st.binary(max_size=200)
    | st.text("{}[]:,\"'&*!|>-#= \n\tabc019.eE+", max_size=120).map(str.encode),
)
def test_no_content_does_anything_but_load_or_raise_config_error(suffix: str, content: bytes) -> None:
    """If this fails, some garbage in a file ends the watching thread or the service."""
    try:
        document = parse(Path("p" + suffix), content)
    except ConfigError as error:
        assert error.problems and error.problems[0].startswith("p" + suffix)
    else:
        assert isinstance(document.values, dict)


def test_pyyaml_is_loaded_only_for_a_yaml_file() -> None:
    """If this fails, every instrumented service pays for a YAML parser it does not use."""
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "import otelkit.record.parameters\n"
        "from otelkit.record.parameters.files import parse\n"
        "parse(Path('p.json'), b'{}')\n"
        "assert 'yaml' not in sys.modules, 'yaml'\n"
        "parse(Path('p.yaml'), b'{}')\n"
        "assert 'yaml' in sys.modules\n"
        "heavy = {'pydantic', 'click', 'rich', 'httpx', 'numpy', 'jinja2', 'opentelemetry.sdk', 'grpc'}\n"
        "assert not heavy.intersection(sys.modules), heavy.intersection(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
