"""Settings of the project. The last two make all processes of a spider share one crawl; remove them, and it is a usual project of Scrapy.

    scrapy crawl quotes -a url=http://quotes.example/ -o quotes-1.jsonl
    scrapy crawl quotes -a url=http://quotes.example/ -o quotes-2.jsonl
"""

import os

BOT_NAME = "quotes"
SPIDER_MODULES = ["quotes.spiders"]
ROBOTSTXT_OBEY = True
TELNETCONSOLE_ENABLED = False
ITEM_PIPELINES = {"quotes.pipelines.Tidy": 300}

SCHEDULER = "webloom.scrapy.FleetScheduler"
WEBLOOM_BROKER = os.environ.get("WEBLOOM_BROKER", "http://127.0.0.1:55626")
