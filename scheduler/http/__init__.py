"""What every HTTP front of ours does alike: errors in OpenAI's form, API keys, the size of a body. No Ray."""
