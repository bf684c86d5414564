from tests.support import ports

ports.take(ports.number_of_this_process())
