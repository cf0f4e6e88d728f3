# ruff: noqa: E501 - the lists are easier to read and extend without wrapping
"""Prints the prompts that the shipped draft was trained on beside what the target wrote by itself.

    python benchmarks/training_prompts.py 1400 > prompts.jsonl

Kinds of task crossed with subjects, in an order that only the seed below decides.
"""

import json
import random
import sys

SUBJECTS = """
the water cycle; photosynthesis; plate tectonics; the immune system; black holes; electric motors; vaccines; gravity;
the food chain; volcanoes; the greenhouse effect; solar panels; DNA; the human heart; sound waves; magnets; rust;
fermentation; tides; eclipses; bees and pollination; coral reefs; glaciers; earthquakes; batteries; lenses; antibiotics;
the periodic table; evolution by natural selection; the scientific method; insulation; friction; rainbows; lightning;
the Roman Empire; the printing press; the Silk Road; the French Revolution; the Industrial Revolution; the Renaissance;
ancient Egypt; the Cold War; the invention of writing; the Great Wall of China; the Age of Exploration; feudalism;
democracy; human rights; free trade; inflation; taxes; insurance; supply and demand; unemployment; globalization;
Buddhism; stoicism; existentialism; utilitarianism; Shakespeare's plays; jazz music; impressionism; Gothic architecture;
folk tales; film editing; opera; poetry; the novel as a form; cave paintings; calligraphy; public libraries; museums;
a village school; an old bakery; a night train; a mountain hut; a fishing boat; a space station; a desert town;
a broken clock; a lost dog; a family recipe; a rainy Sunday; a first day at work; a long bridge; a small theatre;
a snowstorm; a garden in spring; a crowded market; an empty house; a letter that arrives late; a lighthouse in winter;
friendship; courage; homesickness; jealousy; forgiveness; patience; curiosity; grief; pride; hope; boredom; trust;
healthy sleep; running for beginners; cooking with lentils; baking bread; saving money; learning a language; yoga;
time management; job interviews; public speaking; remote work; meditation; houseplants; bicycle repair; camping;
first aid; recycling; home office furniture; buying a used car; planning a wedding; travelling with children; chess;
photography; knitting; playing the guitar; drawing portraits; growing tomatoes; keeping bees; training a puppy;
smartphones; social media; electric cars; artificial intelligence; online shopping; video games; robots in factories;
cloud computing; passwords and security; search engines; spreadsheets; drones; 3D printing; open source software;
Paris; Tokyo; Cairo; the Amazon rainforest; Iceland; the Sahara; Kenya; Norway; Mexico; Vietnam; Canada; Greece;
elephants; owls; octopuses; wolves; penguins; butterflies; sharks; horses; spiders; dolphins; tortoises; ravens
"""

ROLES = """
a ship's cook; a retired judge; a nervous inventor; a kindergarten teacher; a medieval knight; a mountain guide;
a taxi driver in a big city; a wise grandmother; a robot that wants to paint; a detective; a sports coach; a farmer;
a museum night guard; a weather forecaster; a fantasy wizard; an astronaut on Mars; a hotel receptionist; a chef;
a stand-up comedian; a career adviser; a doctor; a pirate; a librarian; a talking cat; a travel agent; a historian
"""

TASKS = """
Explain {s} to a ten-year-old.; What is the history of {s}?; How does one explain {s} in simple terms?
What are the main advantages and disadvantages of {s}?; Describe three common misconceptions about {s}.
Compare {s} with {t}. What do they have in common?; Why does {s} matter today?; Give me five facts about {s}.
Write a short poem about {s}.; Write a short story in which {s} plays a part.; Write the first paragraph of a novel about {s}.
Write a blog post about {s} for beginners.; Write an email to a colleague about {s}.; Write a speech about {s}.
Write a dialogue between two friends about {s}.; Write a letter to the editor about {s}.; Write a slogan for {s}.
Write a limerick about {s}.; Write a product review that mentions {s}.; Write a persuasive essay about {s}.
Describe {s} so vividly that the reader can see it.; Write a scene with {s} and {t} in it.; Write a haiku about {s}.
Write an outline for a lesson about {s}.; Write a quiz with four questions about {s}.; Write a checklist about {s}.
Imagine you are {r}. Tell me what you think of {s}.; You are {r}. Introduce yourself and talk about {s}.
Pretend to be {r} who has to explain {s} to a stranger.; Act as {r}. I ask you for advice about {s}.
As {r}, write a diary entry about {s}.; Play the part of {r} and argue against {s}.
How would {r} describe {s}?; What questions would {r} ask about {s}?
What is the difference between {s} and {t}?; Is there a link between {s} and {t}? Explain.
What are the causes and effects of {s}?; How has {s} changed over the last hundred years?
Which ethical questions does {s} raise?; How do scientists study {s}?; What role does {s} play in literature?
Summarize what is known about {s} in three sentences.; List the steps someone should take to learn about {s}.
What should a beginner know about {s}?; Can you recommend a plan for a week around {s}?
Who was the first person to write about {s}?; When did people begin to care about {s}?; Where can I learn about {s}?
What is the best way to talk about {s} with children?; Discuss how {s} influences everyday life.
A friend says that {s} is overrated. How would you reply?; Analyse the relation between {s} and culture.
Define {s} and give an example.; What would the world look like without {s}?; Name three books about {s} and why to read them.
If I have {n} coins and spend {m} on {s}, how many are left? Explain your steps.
A class about {s} has {n} students and {m} of them are absent. What share is present?
A trip to see {s} takes {m} hours at {n} kilometres an hour. How far is it?
Write a Python function for a program about {s}.; Write an SQL query for a table of notes about {s}.
Translate into French: I would like to know more about {s}.; Translate into German: We talked about {s} all evening.
Extract the nouns from this sentence: "Yesterday we read about {s} and {t}."
Rewrite more formally: "Hey, {s} is really cool, you should check it out!"
Give this text a title: "Many people think of {s} first, but {t} deserves attention as well."
Sort these by importance and say why: {s}, {t}, patience.; What rhymes with the last word of "{s}"?
"""


def entries(text: str) -> list[str]:
    """What stands between semicolons and ends of lines."""
    return [entry.strip() for line in text.splitlines() for entry in line.split(";") if entry.strip()]


def main() -> None:
    rng = random.Random(20)
    subjects, roles, tasks = entries(SUBJECTS), entries(ROLES), entries(TASKS)
    seen: set[str] = set()
    while len(seen) < int(sys.argv[1]):
        first, second = rng.sample(subjects, 2)
        small = rng.randint(2, 9)
        prompt = rng.choice(tasks).format(
            s=first, t=second, r=rng.choice(roles), m=small, n=rng.randint(small + 1, 60)
        )
        if prompt not in seen:
            seen.add(prompt)
            print(json.dumps({"prompt": prompt}))


if __name__ == "__main__":
    main()
