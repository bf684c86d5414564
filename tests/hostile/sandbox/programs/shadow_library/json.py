print("@REACHED@ json of the hand-in")
raise SystemExit(0)
