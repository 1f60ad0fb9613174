package mcpstdio_test

func victimIfAsked() {}
