"""What the user chose for the stack: variables of the environment, else of the ``.env`` file beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from otelkit.compose.layout import PARTS, PROFILES, Part
from otelkit.errors import ConfigError


class Settings:
    """The variables that Compose would see.

    Args:
        directory: the folder with the generated files.
        environment: variables that come before those of the file.

    Raises:
        ConfigError: the file can't be read.
    """

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._file = _read(directory / ".env")
        self._path = directory / ".env"

    def get(self, name: str, default: str) -> str:
        """The value of a variable; one that is empty counts as not set, as with Compose's ``:-``."""
        return self._environment.get(name) or self._file.get(name) or default

    def port(self, variable: str, default: int) -> int:
        """A port.

        Raises:
            ConfigError: the variable holds something else.
        """
        text = self.get(variable, str(default))
        if not text.isascii() or not text.isdigit() or not 0 < int(text) < 65536:
            raise ConfigError(
                [f"{variable}={text}: is no port"],
                hint=f"Give it a number from 1 to 65535, in {self._path} or in the environment.",
            )
        return int(text)

    def profiles(self, asked: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Profiles to start: those asked for, else those of ``COMPOSE_PROFILES``.

        Raises:
            ConfigError: there is no such profile.
        """
        named = asked or tuple(
            one.strip() for one in self.get("COMPOSE_PROFILES", "").split(",") if one.strip()
        )
        unknown = [one for one in named if one not in (*PROFILES, "*")]
        if unknown:
            raise ConfigError(
                [f"{one}: is no profile of the stack" for one in unknown],
                hint=f"There are {', '.join(PROFILES)}; see --profile, or COMPOSE_PROFILES in {self._path}.",
            )
        return named

    def parts(self, asked: tuple[str, ...] = ()) -> tuple[Part, ...]:
        """The parts that these profiles start."""
        wanted = set(self.profiles(asked))
        return tuple(part for part in PARTS if "*" in wanted or wanted.intersection(part.profiles))


def _read(path: Path) -> dict[str, str]:
    """Names and values of a ``.env`` file; of its syntax what the generated one uses."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path}: can't be read: {error}"]) from error
    values = {}
    for line in text.splitlines():
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        if equals and not name.startswith("#"):
            bare = value.split(" #", 1)[0].strip()
            quoted = len(bare) > 1 and bare[0] == bare[-1] and bare[0] in "'\""
            values[name.strip()] = bare[1:-1] if quoted else bare
    return values
