BOT_NAME = "directory"
SPIDER_MODULES = ["directory_bot.spiders"]
ROBOTSTXT_OBEY = True
ITEM_PIPELINES = {"directory_bot.pipelines.FilterWords": 1}
