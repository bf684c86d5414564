"""LTI 1.3 Advantage: what is said between this tool and a learning platform. No database, no Flask."""
