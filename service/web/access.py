"""Who may call what: bearer tokens, compared in constant time."""

import hmac
from hashlib import sha256

from pydantic import SecretStr

from service.problems import Problem
from service.web.router import Access


class Tokens:
    """The tokens of a server; the admin token opens read routes as well."""

    def __init__(self, admin: SecretStr | None, read: SecretStr | None) -> None:
        self._admin = _digest(admin)
        self._read = _digest(read)

    def check(self, access: Access, headers: dict[bytes, bytes]) -> None:
        """Refuse a caller without the token that the route needs."""
        if access == "open" or (access == "read" and self._read is None):
            return
        if access == "admin" and self._admin is None:
            raise Problem(
                403,
                "forbidden",
                "Routes that change state are off: the operator has set no admin token (AIRLOCK_ADMIN_TOKEN).",
            )
        given = headers.get(b"authorization", b"")
        scheme, _, token = given.partition(b" ")
        if scheme.lower() == b"bearer" and self._opens(access, sha256(token.strip()).digest()):
            return
        raise Problem(
            401,
            "unauthorized",
            "This route needs the header `Authorization: Bearer <token>` with a token of this server.",
            headers=((b"www-authenticate", b'Bearer realm="airlock"'),),
        )

    def _opens(self, access: Access, given: bytes) -> bool:
        # Both comparisons always run: the time taken says nothing about either token.
        admin = self._admin is not None and hmac.compare_digest(given, self._admin)
        read = self._read is not None and hmac.compare_digest(given, self._read)
        return admin or (read and access == "read")


def _digest(token: SecretStr | None) -> bytes | None:
    return None if token is None else sha256(token.get_secret_value().encode()).digest()
