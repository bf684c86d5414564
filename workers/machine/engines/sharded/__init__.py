"""One model over several processes, on one computer or several: a machine whose engine is several ranks."""
