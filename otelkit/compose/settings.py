"""What the user chose for the stack: variables of the environment, else of the ``.env`` file beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from otelkit.compose import dotenv
from otelkit.compose.layout import PARTS, PROFILES, Part
from otelkit.errors import ConfigError


class Settings:
    """The variables that Compose would see.

    Args:
        directory: the folder with the generated files.
        environment: variables that come before those of the file.

    Raises:
        ConfigError: the file can't be read, or Compose would refuse it.
    """

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._file = dotenv.read(directory / ".env", environment)
        self._path = directory / ".env"

    def get(self, name: str, default: str) -> str:
        """The value of a variable; one that is empty counts as not set, as with Compose's ``:-``.

        The environment comes before the file, even with an empty value.
        """
        return self._environment.get(name, self._file.get(name)) or default

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
