from tests.support import ports

ports.take()
