print("@REACHED@ json of the submission")
raise SystemExit(0)
