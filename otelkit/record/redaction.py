"""What of a parameter's value may leave the process, and in which form; for observed and declared changes.

* Secrets never leave, whatever their form: recognised by the parameter's name (or the key inside a value) and
  by the shape of the value; ``[redacted]`` stands in their place.
* Content (system prompts, messages), ids of end users and values of more than ``MAX_TEXT`` characters leave
  as a digest, so that a change of them is seen but not what they say.
* What is no JSON value gets a form that is the same in every process: no addresses, no order of a set.

Users add rules by ``configure`` or by the environment variables ``OTELKIT_REDACT_PARAMETERS`` (hidden),
``OTELKIT_HASH_PARAMETERS`` (digest) and ``OTELKIT_SHOW_PARAMETERS`` (neither, though the name looks like it);
each takes names or patterns such as ``*_prompt``, separated by commas. A value shaped like a secret is hidden
in any case.
"""

from __future__ import annotations

import enum
import os
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Final

from otelkit.model import UNSET, ParameterValue, canonical
from otelkit.record.stable import digest, normalise, stable_text

HIDDEN: Final = "[redacted]"
MAX_TEXT: Final = 4096
"""Longest canonical text (characters) of a value that leaves the process as it is."""
HIDE_VARIABLE: Final = "OTELKIT_REDACT_PARAMETERS"
HASH_VARIABLE: Final = "OTELKIT_HASH_PARAMETERS"
SHOW_VARIABLE: Final = "OTELKIT_SHOW_PARAMETERS"

_MAX_NAMES: Final = 4096
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SECRET_WORDS: Final = _words(
    "password passwords passwd pwd passphrase passcode secret secrets credential credentials authorization "
    "auth cookie cookies bearer jwt dsn otp apikey apikeys accesskey secretkey privatekey authtoken "
    "accesstoken"
)
_KEY_OWNERS: Final = _words(
    "api access private secret auth encryption signing shared master subscription account service client "
    "admin deploy ssh license"
)
_HARMLESS_TOKENS: Final = _words(
    "eos bos pad unk stop sep mask cls end start image audio video special forced begin per output input "
    "first next last new max min prompt completion thinking decoder"
)
"""``eos_token`` or ``time_to_first_token`` are no secrets; other names that end in ``token`` are."""
_TOKEN_OWNERS: Final = _words("access api auth bearer refresh session security id")
_CONTENT_NAMES: Final = _words(
    "system system_prompt system_instruction system_instructions instructions prompt messages message input "
    "inputs content contents context documents developer_message history user user_id end_user "
    "safety_identifier"
)
"""What was said, and by whom."""
_SECRET_SHAPE: Final = re.compile(
    r"""(?x)
      \b[sr]k[-_](?:[a-z]+[-_])*[A-Za-z0-9_-]{16,}     # OpenAI, Anthropic, Stripe and those who follow them
    | \b(?:AKIA|ASIA)[0-9A-Z]{16}\b                    # AWS
    | \bAIza[0-9A-Za-z_-]{30,}                         # Google
    | \bya29\.[0-9A-Za-z_-]{20,}
    | \bgh[pousr]_[0-9A-Za-z]{20,} | \bgithub_pat_\w{20,} | \bglpat-[\w-]{16,}
    | \bxox[abeoprs]-[0-9A-Za-z-]{10,}                 # Slack
    | \bhf_[0-9A-Za-z]{20,} | \bnpm_[0-9A-Za-z]{20,} | \bpypi-[\w-]{20,}
    | \bSG\.[\w-]{16,}\.[\w-]{16,}                     # SendGrid
    | \beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.                   # JSON web token
    | (?i:\b(?:bearer|basic)\s+[A-Za-z0-9._~+/=-]{12,})
    | -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY
    | \b[a-z][a-z0-9+.-]*://[^\s/:@]*:[^\s/@]+@        # a password in an address
    | (?i:[?&;\#](?:[\w.-]*[_-])?(?:token|key|sig|signature|secret|credential|password|auth)=[^\s&]{4,})
    | \bhooks\.slack\.com/services/\w+ | /api/webhooks/\d+/[\w-]{16,}
    | (?i:\b(?:password|passwd|pwd|secret|(?:api|access)[_-]?key|(?:access|refresh|id|auth)[_-]?token)\b
        ["']?\s*[=:]\s*["']?[^\s"']{4,})
    """
)
_OWN_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{16} \(\d+ characters\)")


class Treatment(enum.Enum):
    """What is done to a value because of its name."""

    SHOW = "show"
    HASH = "hash"
    HIDE = "hide"


def _built_in(name: str) -> Treatment:
    words = [word.lower() for word in _WORD.findall(name)]
    last = words[-1] if words else ""
    before = words[-2] if len(words) > 1 else ""
    if _SECRET_WORDS.intersection(words):
        return Treatment.HIDE
    if last in ("key", "keys") and (not before or before in _KEY_OWNERS):
        return Treatment.HIDE
    if last == "token" and before not in _HARMLESS_TOKENS:
        return Treatment.HIDE
    if last == "tokens" and before in _TOKEN_OWNERS:
        return Treatment.HIDE
    return Treatment.HASH if "_".join(words) in _CONTENT_NAMES else Treatment.SHOW


class Redactor:
    """The rules in force.

    Args:
        hide, digests, show: names or patterns of parameters whose values are replaced, leave as a digest, or
            leave as they are though the name looks like a secret or content. Case does not matter; the first
            that fits counts.
    """

    def __init__(
        self, *, hide: Iterable[str] = (), digests: Iterable[str] = (), show: Iterable[str] = ()
    ) -> None:
        self._rules = (
            (Treatment.HIDE, tuple(pattern.lower() for pattern in hide)),
            (Treatment.HASH, tuple(pattern.lower() for pattern in digests)),
            (Treatment.SHOW, tuple(pattern.lower() for pattern in show)),
        )
        self._known: dict[str, Treatment] = {}

    def treatment(self, name: str) -> Treatment:
        """What the rules say of a parameter's name, or of a key inside a value."""
        known = self._known.get(name)
        if known is None:
            if len(self._known) >= _MAX_NAMES:
                self._known.clear()
            known = self._known[name] = self._decide(name)
        return known

    def _decide(self, name: str) -> Treatment:
        lowered = name.lower()
        for treatment, patterns in self._rules:
            if any(fnmatchcase(lowered, pattern) for pattern in patterns):
                return treatment
        return _built_in(name)

    def exported(self, name: str, value: ParameterValue) -> ParameterValue:
        """The form of ``value`` that may leave the process: a JSON value, or UNSET. Never raises.

        Whatever comes out may be put in again and comes out unchanged.
        """
        if value is UNSET or value is None or value is True or value is False:
            return value
        treatment = self.treatment(name)
        if treatment is Treatment.HIDE:
            return HIDDEN
        kind = type(value)
        if kind is int and treatment is Treatment.SHOW and -(1 << 53) < value < 1 << 53:
            return value
        if kind is str and (value == HIDDEN or _OWN_DIGEST.fullmatch(value)):
            return value
        if treatment is Treatment.HASH:
            return digest(stable_text(value))
        plain = normalise(value)
        text = canonical(plain)
        return digest(text) if len(text) > MAX_TEXT else self._inside(plain)

    def _inside(self, value: ParameterValue) -> ParameterValue:
        """Secrets in a JSON value hidden, wherever they are."""
        if isinstance(value, str):
            return HIDDEN if len(value) >= 8 and _SECRET_SHAPE.search(value) else value
        if isinstance(value, dict):
            return {self._inside(key): self._member(key, item) for key, item in value.items()}
        if isinstance(value, list):
            if len(value) == 2 and isinstance(value[0], str):  # a header as a pair
                return [self._inside(value[0]), self._member(value[0], value[1])]
            return [self._inside(item) for item in value]
        return value

    def _member(self, key: str, value: ParameterValue) -> ParameterValue:
        if value is None or isinstance(value, bool):
            return value
        treatment = self.treatment(key)
        if treatment is Treatment.HIDE:
            return HIDDEN
        if treatment is Treatment.HASH and isinstance(value, str):
            return value if _OWN_DIGEST.fullmatch(value) else digest(canonical(value))
        return self._inside(value)


def _patterns(variable: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in os.environ.get(variable, "").split(",") if part.strip())


def from_environment() -> Redactor:
    """The rules that the environment variables ask for."""
    return Redactor(
        hide=_patterns(HIDE_VARIABLE), digests=_patterns(HASH_VARIABLE), show=_patterns(SHOW_VARIABLE)
    )


_current: Redactor = from_environment()


def configure(*, hide: Iterable[str] = (), digests: Iterable[str] = (), show: Iterable[str] = ()) -> None:
    """Put rules in force for this process, in addition to those of the environment variables."""
    global _current
    _current = Redactor(
        hide=(*hide, *_patterns(HIDE_VARIABLE)),
        digests=(*digests, *_patterns(HASH_VARIABLE)),
        show=(*show, *_patterns(SHOW_VARIABLE)),
    )


def rules() -> Redactor:
    """The rules in force; another object once they change, so that what was computed by them can be kept."""
    return _current


def exported(name: str, value: ParameterValue) -> ParameterValue:
    """The form of one parameter's value that may leave the process, by the rules in force."""
    return _current.exported(name, value)


def exported_parameters(parameters: Mapping[str, ParameterValue]) -> dict[str, ParameterValue]:
    """``exported`` for each of several parameters."""
    redactor = _current
    return {name: redactor.exported(name, value) for name, value in parameters.items()}
