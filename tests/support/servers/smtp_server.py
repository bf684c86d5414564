"""A mail server on loopback that takes letters, or does what a test says instead."""

from __future__ import annotations

import asyncio
import base64
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field


@dataclass
class Mailbox:
    """What arrived, and how the server behaves. `says` may give another answer to a command."""

    letters: list[tuple[str, list[str], bytes]] = field(default_factory=list)
    """From, to, content."""
    commands: list[str] = field(default_factory=list)
    says: Callable[[str], str | None] = lambda _command: None
    """A command, its first word in capitals -> what to answer, `hang` or `drop`; nothing: as usual."""
    starttls: ssl.SSLContext | None = None
    users: dict[str, str] = field(default_factory=dict)
    """Who may sign in, with their passwords; empty: nobody needs to."""
    arrived: threading.Event = field(default_factory=threading.Event)
    port: int = 0

    @property
    def url(self) -> str:
        return f"smtp://127.0.0.1:{self.port}"


class Talk:
    """One connection."""

    def __init__(self, box: Mailbox, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.box, self.reader, self.writer = box, reader, writer
        self.sender, self.to = "", list[str]()
        self.encrypted = self.known = False

    async def say(self, line: str) -> None:
        self.writer.write(f"{line}\r\n".encode())
        await self.writer.drain()

    async def run(self) -> None:
        await self.say("220 test")
        while line := (await self.reader.readline()).decode("latin-1").rstrip("\r\n"):
            word, _, rest = line.partition(" ")
            line = f"{word.upper()} {rest}".strip()
            self.box.commands.append(line)
            told = self.box.says(line)
            if told == "hang":
                await asyncio.Event().wait()
            if told == "drop":
                return
            if told is not None:
                await self.say(told)
            elif not await self.answer(line):
                return

    async def answer(self, line: str) -> bool:
        word, _, rest = line.partition(" ")
        if word == "EHLO":
            offers = ["AUTH PLAIN LOGIN"] if self.box.users else []
            offers += ["STARTTLS"] if self.box.starttls and not self.encrypted else []
            for one in ["test", *offers]:
                await self.say(f"250-{one}")
            await self.say("250 8BITMIME")
        elif word == "STARTTLS" and self.box.starttls:
            await self.say("220 go on")
            await self.writer.start_tls(self.box.starttls)
            self.encrypted = True
        elif word == "AUTH":
            await self.sign_in(rest)
        elif word == "MAIL":
            self.sender, self.to = rest, []
            needed = self.box.users and not self.known
            await self.say("530 sign in first" if needed else "250 ok")
        elif word == "RCPT":
            self.to.append(rest.partition("<")[2].partition(">")[0])
            await self.say("250 ok")
        elif word == "DATA":
            await self.data()
        else:
            await self.say("221 bye" if word == "QUIT" else "250 ok")
            return word != "QUIT"
        return True

    async def sign_in(self, rest: str) -> None:
        if not rest.startswith("PLAIN "):
            return await self.say("535 wrong")
        given = base64.b64decode(rest.split()[1]).split(b"\0")
        self.known = self.box.users.get(given[1].decode()) == given[2].decode()
        await self.say("235 ok" if self.known else "535 wrong")

    async def data(self) -> None:
        await self.say("354 go on")
        content = (await self.reader.readuntil(b"\r\n.\r\n"))[:-5]
        told = self.box.says("the content")
        if told in ("drop", "hang"):
            raise ConnectionError
        if told is None:
            self.box.letters.append((self.sender, self.to, content))
            self.box.arrived.set()
        await self.say(told or "250 taken")


@contextmanager
def mail_server() -> Iterator[Mailbox]:
    """Runs while the context is open."""
    box = Mailbox()
    loop = asyncio.new_event_loop()
    started, stop = threading.Event(), asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await Talk(box, reader, writer).run()
        writer.close()

    async def serve() -> None:
        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        box.port = server.sockets[0].getsockname()[1]
        started.set()
        await stop.wait()
        server.close()

    def run() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(serve())
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    started.wait(30)
    try:
        yield box
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
